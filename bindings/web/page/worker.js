'use strict';
// Runs the library in a worker: the file is read by slices, synchronously, whenever the library wants bytes.
let file, lib, lastWords = '', asking = 0;
const slices = new FileReaderSync();
const decode = (at, len) => new TextDecoder().decode(new Uint8Array(lib.memory.buffer, at >>> 0, len >>> 0));

const host = {
  read(offset, to, len) {
    try {
      const bytes = new Uint8Array(slices.readAsArrayBuffer(file.slice(offset, offset + (len >>> 0))));
      if (bytes.length !== len >>> 0) return 1;
      new Uint8Array(lib.memory.buffer).set(bytes, to >>> 0);
      return 0;
    } catch {
      return 1;
    }
  },
  event(at, len) { postMessage({ id: asking, event: JSON.parse(decode(at, len)) }); },
  panicked(at, len) { lastWords ||= decode(at, len); },
};

// Memory of the library that holds bytes for the time of a call.
function lent(len, use) {
  const at = lib.take(len) >>> 0;
  try { return use(at); } finally { lib.give(at, len); }
}

function ask(question) {
  const text = new TextEncoder().encode(JSON.stringify(question));
  const len = lent(text.length, at => {
    new Uint8Array(lib.memory.buffer).set(text, at);
    return lib.call(at, text.length);
  });
  return JSON.parse(decode(lib.answered(), len));
}

const STEP = 1 << 20;

// Hands over the bytes of a file in parts of at most a mebibyte.
function read(inode, offset, len, take) {
  return lent(STEP, at => {
    let done = 0;
    while (done < len) {
      const count = lib.read_file(inode, offset + done, at, Math.min(STEP, len - done));
      if (count < 0) throw new Error(decode(lib.answered(), lib.failure_len()));
      if (count === 0) break;
      take(new Uint8Array(lib.memory.buffer, at, count), done);
      done += count;
    }
    return done;
  });
}

function bytes({ inode, offset, len }) {
  const all = new Uint8Array(len);
  const done = read(inode, offset, len, (part, at) => all.set(part, at));
  return all.slice(0, done);
}

// A whole file: the browser keeps the parts, on disk if it wants. Each is with the browser before the next is read, so
// that memory stays small.
async function whole({ inode, size, type }) {
  const parts = [];
  let done = 0;
  while (done < size) {
    const part = new Blob([bytes({ inode, offset: done, len: Math.min(4 * STEP, size - done) })]);
    if (part.size === 0) throw new Error(`the file ended after ${done} of ${size} bytes`);
    await part.slice(0, 1).arrayBuffer();
    parts.push(part);
    done += part.size;
    postMessage({ id: asking, event: { done, of: size } });
  }
  return new Blob(parts, { type });
}

onmessage = async ({ data }) => {
  const { id } = data;
  try {
    if (data.file) {
      file = data.file;
      lib = new WebAssembly.Instance(data.module, { host }).exports;
      lib.begin(file.size);
      return;
    }
    asking = id;
    const answer = data.whole ? await whole(data.whole) : data.bytes ? bytes(data.bytes) : ask(data.ask);
    postMessage({ id, answer, memory: lib.memory.buffer.byteLength });
  } catch (error) {
    // After a trap the library's state is unknown: the page starts another worker.
    const dead = error instanceof WebAssembly.RuntimeError || lastWords !== '';
    const why = dead ? `an error in the library itself; please report it: ${lastWords || error.message}` : error.message;
    postMessage({ id, error: why, dead });
  }
};
