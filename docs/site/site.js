// The menu of narrow windows, the colours, the search, and the buttons that copy code.
"use strict";
const root = document.currentScript.dataset.root;
const mostResults = 30;

function startMenu() {
  const button = document.getElementById("menu-button");
  button.addEventListener("click", () => {
    const isOpen = document.body.classList.toggle("menu-open");
    button.setAttribute("aria-expanded", String(isOpen));
  });
  // Pages of the API reference share one menu, which knows no current page.
  for (const link of document.querySelectorAll("#menu a")) {
    if (link.href === location.href.split("#")[0]) link.setAttribute("aria-current", "page");
  }
  const menu = document.getElementById("menu");
  const current = menu.querySelector('[aria-current="page"]');
  if (current && current.offsetTop > menu.clientHeight / 2) menu.scrollTop = current.offsetTop - menu.clientHeight / 2;
}

function startColours() {
  const themes = { "": "dark", dark: "light", light: "" };
  const names = { "": "Colours: system", dark: "Colours: dark", light: "Colours: light" };
  const button = document.getElementById("theme-button");
  const element = document.documentElement;
  const show = () => {
    button.title = names[element.dataset.theme];
    button.setAttribute("aria-label", button.title);
  };
  button.addEventListener("click", () => {
    element.dataset.theme = themes[element.dataset.theme];
    localStorage.setItem("theme", element.dataset.theme);
    show();
  });
  show();
}

// A result's rank: lower is better, -1 is none. Every word must be in the title or the text.
function rankOf(entry, words) {
  const title = entry[0].toLowerCase();
  const last = title.slice(title.lastIndexOf("::") + (title.includes("::") ? 2 : 0));
  let rank = 0;
  for (const word of words) {
    if (last === word || title === word) rank += 0;
    else if (last.startsWith(word)) rank += 2;
    else if (title.includes(word)) rank += 4;
    else if (entry[1].toLowerCase().includes(word)) rank += 6;
    else if (entry[3].toLowerCase().includes(word)) rank += 8;
    else return -1;
  }
  return rank + title.length / 1000;
}

function excerpt(entry, words) {
  const text = entry[3];
  const at = Math.max(0, ...words.map((word) => text.toLowerCase().indexOf(word)));
  const begin = Math.max(0, at - 40);
  return text ? (begin > 0 ? "…" : "") + text.slice(begin, begin + 110) : "";
}

function showResults(box, query) {
  const words = query.toLowerCase().replaceAll("()", "").split(/\s+/).filter(Boolean);
  box.replaceChildren();
  box.hidden = words.length === 0;
  if (box.hidden) return;
  const ranked = [];
  for (const entry of window.searchIndex) {
    const rank = rankOf(entry, words);
    if (rank >= 0) ranked.push([rank, entry]);
  }
  ranked.sort((a, b) => a[0] - b[0]);
  for (const [, entry] of ranked.slice(0, mostResults)) {
    const link = document.createElement("a");
    link.href = root + entry[2];
    const [title, where, text] = ["strong", "span", "small"].map((tag) => document.createElement(tag));
    title.textContent = entry[0];
    where.textContent = entry[1] === entry[0] ? "" : entry[1];
    text.textContent = excerpt(entry, words);
    link.append(title, where, text);
    box.append(link);
  }
  if (ranked.length === 0) box.textContent = "Nothing was found.";
}

function startSearch() {
  const form = document.getElementById("search");
  const field = form.querySelector("input");
  const box = document.getElementById("results");
  const load = () => {
    if (window.searchIndex || form.dataset.loading) return;
    form.dataset.loading = "yes";
    const script = document.createElement("script");
    script.src = `${root}search-index.js`;
    script.onload = () => showResults(box, field.value);
    document.head.append(script);
  };
  field.addEventListener("focus", load);
  field.addEventListener("input", () => {
    load();
    if (window.searchIndex) showResults(box, field.value);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const first = box.querySelector("a");
    if (first) location.href = first.href;
  });
  form.addEventListener("keydown", (event) => {
    const links = [...box.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Escape") box.hidden = true;
    else if (event.key === "ArrowDown") (links[at + 1] ?? field).focus();
    else if (event.key === "ArrowUp") (links[at - 1] ?? field).focus();
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    if (!form.contains(event.target)) box.hidden = true;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    field.focus();
  });
}

function startCopying() {
  for (const figure of document.querySelectorAll("figure.code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(figure.querySelector("pre").textContent);
      button.textContent = "Copied";
    });
    figure.append(button);
  }
}

startMenu();
startColours();
startSearch();
startCopying();
