// The library as promises: a worker for quick questions and one for long ones, which can be ended at any time.

const SLOW = 12000;
let module, workerUrl;

let ready;

// Unpacks and compiles the library, once.
const prepare = () => ready ??= (async () => {
  const packed = Uint8Array.from(atob(document.getElementById('module').textContent.trim()), c => c.charCodeAt(0));
  document.getElementById('module').remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  module = await WebAssembly.compile(await new Response(stream).arrayBuffer());
  workerUrl = URL.createObjectURL(new Blob([document.getElementById('worker-source').textContent], { type: 'text/javascript' }));
})();

class Desk {
  constructor(file, part) {
    Object.assign(this, { file, part, worker: null, waiting: new Map(), last: 0, memory: 0 });
  }

  start() {
    this.worker = new Worker(workerUrl);
    this.worker.onmessage = ({ data }) => this.heard(data);
    this.worker.onerror = event => this.end(`the worker failed: ${event.message}`);
    this.worker.postMessage({ file: this.file, module });
    if (this.part) this.send({ ask: { ask: 'open', ...this.part } }).catch(() => {});
  }

  heard({ id, answer, event, error, dead, memory }) {
    const one = this.waiting.get(id);
    if (memory) document.documentElement.dataset.memory = this.memory = memory;
    if (event) { one?.hear?.(event); return; }
    this.waiting.delete(id);
    if (error !== undefined || answer?.error !== undefined) one?.reject(new Error(error ?? answer.error));
    else one?.resolve(answer);
    if (dead) this.end(error);
  }

  send(what, hear) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, hear });
      this.worker.postMessage({ id, ...what });
    });
  }

  call(what, hear) {
    if (!this.worker) this.start();
    return this.send(what, hear);
  }

  ask(question, hear) { return this.call({ ask: question }, hear); }

  // Ends whatever runs; the next call begins with a fresh worker.
  end(why = 'stopped') {
    this.worker?.terminate();
    this.worker = null;
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    for (const one of waiting) one.reject(new Error(why));
  }
}

// What is open: the file and its number, the part of it with words for it, and both desks.
const state = { file: null, image: 0, part: null, which: '', quick: null, long: null, about: null };

let asked = null, running = 0, slowTimer = 0, busyTimer = 0;

// A quick question: a bar shows that it runs, and a button ends it if it takes long.
async function quick(what, desk = state.quick) {
  asked = desk;
  if (running++ === 0) {
    busyTimer = setTimeout(() => { byId('busy').hidden = false; }, 250);
    slowTimer = setTimeout(() => { byId('slow').hidden = false; }, SLOW);
  }
  try {
    return await desk.call(what);
  } finally {
    if (--running === 0) {
      clearTimeout(busyTimer);
      clearTimeout(slowTimer);
      byId('busy').hidden = byId('slow').hidden = true;
    }
  }
}

const ask = question => quick({ ask: question });
