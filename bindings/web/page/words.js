// Elements, names and numbers.

const byId = id => document.getElementById(id);

// An element: text goes in as text, never as markup.
function el(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || (value === false && !key.startsWith('aria-'))) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true && !key.startsWith('aria-') ? '' : value);
  }
  element.append(...inside.filter(one => one !== null && one !== undefined));
  return element;
}

// Names may hold any character: those that can't be seen or turn the direction of text are shown as their numbers.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const shown = text => text.replace(UNSEEN, c => `\\u{${c.charCodeAt(0).toString(16)}}`);
const name = text => el('bdi', {}, shown(text));

const count = number => Number(number).toLocaleString('en');
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
const moment = text => text ? text.slice(0, 19).replace('T', ' ') : '';

function human(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at++; }
  // Rounded up, as everywhere.
  const tenths = Math.ceil(bytes * 10);
  return `${at && tenths < 100 ? (tenths / 10).toFixed(1) : Math.ceil(bytes)} ${units[at]}`;
}

function complain(text) {
  const box = byId('alert');
  box.replaceChildren(el('span', {}, shown(text)), el('button', { class: 'quiet', 'aria-label': 'Close this message', onclick: () => { box.hidden = true; } }, '\u00d7'));
  box.hidden = false;
}

// Says something beside what is said already.
function remark(text) {
  const box = byId('alert');
  complain(box.hidden ? text : `${box.firstChild.textContent} ${text}`);
}

const calm = () => { byId('alert').hidden = true; };

// Runs what may fail, and says so.
function tried(work) {
  return async (...given) => {
    try { return await work(...given); } catch (error) {
      if (error.message !== 'stopped') complain(error.message);
    }
  };
}

function table(heads, rows, numeric = []) {
  const cell = (tag, text, at) => el(tag, { class: numeric.includes(at) ? 'n' : null, scope: tag === 'th' ? 'col' : null }, text instanceof Node ? text : shown(String(text)));
  return el('div', { class: 'scroll' }, el('table', {},
    el('thead', {}, el('tr', {}, ...heads.map((head, at) => cell('th', head, at)))),
    el('tbody', {}, ...rows.map(row => el('tr', {}, ...row.map((text, at) => cell('td', text, at)))))));
}

const facts = rows => el('dl', { class: 'facts' }, ...rows.filter(([, value]) => value !== null && value !== undefined && value !== '')
  .flatMap(([label, value]) => [el('dt', {}, label), el('dd', {}, value instanceof Node ? value : shown(String(value)))]));
