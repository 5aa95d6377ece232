"""A headless Chromium that a test controls by the DevTools protocol, over two pipes."""

import json
import os
import selectors
import subprocess
import tempfile
import time

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"]


class BrowserError(Exception):
    """The browser refused a command, ended, or did not answer in time."""


class Chromium:
    """One browser process with a profile of its own. Use as a context."""

    def __init__(self, program, timeout=60):
        self.timeout = timeout
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command_end, self.commands = os.pipe()
        self.answers, answer_end = os.pipe()

        def connect():  # Chromium reads commands from 3 and writes answers to 4
            high = os.dup(command_end), os.dup(answer_end)
            while min(high) < 5:
                high = tuple(os.dup(fd) for fd in high)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [program, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_end)
        os.close(answer_end)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.answers, selectors.EVENT_READ)
        self.buffer = b""
        self.next_id = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(self.timeout)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    def _next_message(self, deadline):
        while b"\0" not in self.buffer:
            if not self.selector.select(max(0, deadline - time.monotonic())):
                raise BrowserError(f"no answer within {self.timeout} s")
            received = os.read(self.answers, 1 << 16)
            if not received:
                raise BrowserError("the browser has ended")
            self.buffer += received
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        """Sends one command and returns its result. Events that arrive meanwhile are kept in `events`."""
        self.next_id += 1
        command = {"id": self.next_id, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            message = self._next_message(deadline)
            if message.get("id") == self.next_id:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def open(self, path, width=1440, height=1400):
        return Page(self, path, width, height)


class Page:
    """A tab with one file. `errors` are uncaught exceptions and errors on the console, since it was opened."""

    def __init__(self, browser, path, width, height):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=path.as_uri())

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, expression):
        """The value of a JavaScript expression, which JSON can hold."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(answer["exceptionDetails"].get("exception", {}).get("description", expression))
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Waits until an expression is true. Raises BrowserError at once after an error of the page."""
        deadline = time.monotonic() + self.browser.timeout
        while not self.evaluate(expression):
            if errors := self.errors():
                raise BrowserError("\n".join(errors))
            if time.monotonic() > deadline:
                raise BrowserError(f"{expression}: still false after {self.browser.timeout} s")
            time.sleep(0.02)

    def paint(self):
        """Waits until what was requested so far is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def click(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.paint()

    def click_element(self, selector):
        box = self.evaluate(f"""(() => {{
          const node = document.querySelector({json.dumps(selector)});
          node.scrollIntoView({{block: 'center'}});
          const {{left, top, width, height}} = node.getBoundingClientRect();
          return [left + width / 2, top + height / 2];
        }})()""")
        self.click(*box)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
        self.paint()

    def errors(self):
        self.call("Runtime.evaluate", expression="0")  # whatever was sent before has arrived after it
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            kind, parameters = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert", "warning"):
                found.append(json.dumps(parameters["args"]))
            elif kind == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(parameters["entry"]["text"])
        return found
