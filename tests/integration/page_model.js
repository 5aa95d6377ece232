// What the script of a snapshot's page computes: node page_model.js VIEWER_FOLDER PAGE.html
// Prints, for each device, the call sites of the picture and where its time axis ends.
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [viewer, page] = process.argv.slice(2);
const text = fs.readFileSync(page, 'utf8');
const elements = {
  getElementById(id) {
    const begin = text.indexOf('>', text.indexOf(`id="${id}"`)) + 1;
    return {textContent: text.slice(begin, text.indexOf('</script>', begin))};
  },
};
const context = vm.createContext({document: elements, atob: (code) => Buffer.from(code, 'base64').toString('latin1')});
const sources = ['format', 'data', 'model'].map((name) => fs.readFileSync(path.join(viewer, `${name}.js`), 'utf8'));
const summary = vm.runInContext(`${sources.join('\n')}
  (() => {
    const snapshot = readSnapshot();
    return JSON.stringify(snapshot.devices.map((data) => {
      const model = new DeviceModel(data, snapshot);
      return {
        device: data.device,
        sites: model.layers.map(({label, place, peak, blocks}) => ({label, place, peak, blocks})),
        axis: model.initialAxis(),
        end: model.endUs,
        times: [...data.events.time],
        actions: [...data.events.action],
      };
    }));
  })()`, context);
console.log(summary);
