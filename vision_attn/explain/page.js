"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const floats = text => new Float32Array(bytes(text).buffer);
const shorts = text => new Uint16Array(bytes(text).buffer);
const [rows, cols] = data.grid, cells = rows * cols, tokens = data.prefix + cells;
const [L, H] = [data.layers.length, data.heads.length];
const places = data.places && bytes(data.places), even = floats(data.even);
const images = data.images.map(i => ({ ...i, pixels: bytes(i.pixels), weights: shorts(i.weights),
  tops: floats(i.tops), sums: floats(i.sums), rollout: floats(i.rollout) }));
const state = { image: 0, layer: 0, head: 0, token: data.query, scale: data.scale, held: false };
const MEAN = -1, SCALES = ["even", "shared", "max"];
const GREY = [191, 191, 191];

// weights of the token that asks, what they sum to, and the even share of its keys
function row(layer, head) {
  const image = images[state.image], weights = new Float64Array(cells);
  const heads = head === MEAN ? data.heads.map((_, h) => h) : [head];
  let sum = 0;
  for (const h of heads) {
    const i = (layer * H + h) * tokens + state.token, unit = image.tops[i] / 65535 / heads.length;
    sum += image.sums[i] / heads.length;
    for (let j = 0; j < cells; j++) weights[j] += image.weights[i * cells + j] * unit;
  }
  return { weights, sum, share: even[layer * tokens + state.token] || 1 };
}

const ratios = map => map.weights.map(w => w / map.share);

// as in colour.py: the ratio of the strongest colour, and colours from -1 to 1, NaN for no weight
function reach(values, scale) {
  const most = Math.max(0, ...values);
  if (scale === "max") return most;
  const least = Math.min(...values.filter(v => v > 0));
  return Math.max(most, Math.min(1 / least, 4), scale === "even" ? data.floor : 1 + 1e-6);
}

function strength(values, scale, top) {
  if (scale === "max") return values.map(v => v / Math.max(top, 1e-30));
  return values.map(v => v > 0 ? Math.max(-1, Math.min(1, Math.log(v) / Math.log(top))) : NaN);
}

function colour(level) {
  if (Number.isNaN(level)) return [0, 0, 0, .55];
  return [...(level > 0 ? data.more : data.less), data.cover * Math.abs(level)];
}

function paint(canvas, levels) {
  canvas.width = cols;
  canvas.height = rows;
  const picture = new ImageData(cols, rows);
  levels.forEach((level, i) => {
    const [r, g, b, a] = colour(level);
    picture.data.set([r, g, b, Math.round(255 * a)], 4 * i);
  });
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

function gradient(...levels) {
  const stops = levels.map(level => {
    const [r, g, b, a] = colour(level);
    return `rgb(${[r, g, b].map((c, i) => Math.round(a * c + (1 - a) * GREY[i])).join()})`;
  });
  return `linear-gradient(to right, ${stops.join()})`;
}

const number = x => x === 0 ? "0" : x >= 0.0995 ? x.toFixed(2) : x.toPrecision(2);
const times = x => x === 0 || x >= 9.95 ? x.toFixed(0) : x < 0.01 ? "<0.01" : x.toFixed(x >= 1.95 ? 1 : 2);
const place = i => `row ${Math.floor(i / cols)}, column ${i % cols}`;
const from = values => values.reduce((a, b) => Math.min(a, b), Infinity);
const to = values => values.reduce((a, b) => Math.max(a, b), 0);

function pixels(width, height, value) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const picture = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) picture.data.set([...value(i), 255], 4 * i);
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}

let photo;  // the image, grey and light, that lies under every map
function showImage() {
  const image = images[state.image], [h, w] = data.size, canvas = at("pixels");
  const rgb = i => image.pixels.subarray(3 * i, 3 * i + 3);
  canvas.width = w;
  canvas.height = h;
  canvas.getContext("2d").drawImage(pixels(w, h, rgb), 0, 0);
  photo = pixels(w, h, i => Array(3).fill(255 * .35 + .65 * rgb(i).reduce((a, b) => a + b) / 3));
  document.documentElement.style.setProperty("--photo", `url(${photo.toDataURL()})`);
  at("flow").textContent = image.flow;
  at("rollends").textContent = `${times(from(image.rollout))} to ${times(to(image.rollout))}`;
  at("scores").replaceChildren(...image.scores.map(([name, score]) => {
    const line = document.createElement("tr"), head = document.createElement("th");
    const share = document.createElement("td"), value = document.createElement("td"), bar = document.createElement("div");
    head.scope = "row";
    head.textContent = name;
    bar.style.width = `${100 * score}%`;
    share.className = "share";
    share.append(bar);
    value.className = "number";
    value.textContent = score.toFixed(3);
    line.append(head, share, value);
    return line;
  }));
}

const asks = () => {
  const here = state.token - data.prefix;
  return here < 0 ? data.front[state.token] : `${data.unit === "pixel" ? "Pixel" : "Token"} in ${place(here)}`;
};
const headName = () => state.head === MEAN ? "mean of the heads" : `head ${data.heads[state.head]}`;

function show() {
  const here = state.token - data.prefix, map = row(state.layer, state.head), own = ratios(map);
  const all = data.layers.map((_, l) => data.heads.map((_, h) => ratios(row(l, h))));
  const tops = all.flat().map(values => reach(values, state.scale));
  const common = state.scale === "shared" && Math.max(...tops);
  const top = common || reach(own, state.scale);
  paint(at("map"), strength(own, state.scale, top));
  for (const mark of document.querySelectorAll(".mark")) {
    mark.hidden = here < 0;
    if (here < 0) continue;
    mark.style.left = `${100 * (here % cols) / cols}%`;
    mark.style.top = `${100 * Math.floor(here / cols) / rows}%`;
    mark.style.width = `${100 / cols}%`;
    mark.style.height = `${100 / rows}%`;
  }
  const least = from(map.weights), most = to(map.weights), rest = 1 - map.sum;
  const weight = w => `${number(w)}, ${times(w / map.share)}\u00a0\u00d7\u00a0even,`;
  at("said").textContent = `${asks()}: layer ${data.layers[state.layer]}, ${headName()}. `
    + (most === 0 ? "It attends to no token of the grid." : `Largest weight ${weight(most)} on ${place(map.weights.indexOf(most))}; `
    + `least ${number(least)}, ${times(least / map.share)}\u00a0\u00d7\u00a0even`
    + (here < 0 ? "." : `; ${weight(map.weights[here])} on itself.`))
    + (data.outside && rest > 5e-4 ? ` ${(100 * rest).toFixed(1)} % lies outside the grid.` : "")
    + (state.held ? " Held." : "");
  const share = `even share ${number(map.share)}`;
  const ends = state.scale === "max" ? ["0", "", `${number(most)}, ${times(top)} \u00d7 even`]
    : [`${times(1 / top)} \u00d7 even`, share, `${times(top)} \u00d7 even`];
  at("ends").childNodes.forEach((end, i) => { end.textContent = ends[i]; });
  at("legend").style.background = state.scale === "max" ? gradient(0, 1) : gradient(-1, 0, 1);
  at("shared").textContent = {
    even: `Each map has its own colours: the strongest is its end farther from the even share, at least ${data.floor} \u00d7. Dark: no weight.`,
    shared: "All maps have the colours of the bar.",
    max: "Each map has its own colours, from 0 to its largest weight.",
  }[state.scale];
  for (const name of ["image", "layer", "head", "scale"]) at(name).value = state[name];
  for (const cell of document.querySelectorAll(".cell")) {
    const [l, h] = [+cell.dataset.layer, +cell.dataset.head], values = all[l][h];
    paint(cell.firstChild, strength(values, state.scale, common || tops[l * H + h]));
    cell.title = `${times(from(values))} to ${times(to(values))} \u00d7 even`;
    cell.setAttribute("aria-pressed", l === state.layer && h === state.head);
  }
  const flow = images[state.image].rollout, kind = state.scale === "max" ? "max" : "even";
  paint(at("rollout"), strength([...flow], kind, reach([...flow], kind)));
  at("front").childNodes.forEach((button, i) => button.setAttribute("aria-pressed", i === state.token));
  at("hasplaces").hidden = !places || here < 0;
  at("noplaces").hidden = !at("hasplaces").hidden;
  at("noplaces").textContent = places ? "A token in front of the grid has no place in the image."
    : "This model adds no positions to its tokens.";
  if (places && here >= 0)
    paint(at("places"), Array.from(places.subarray(here * cells, (here + 1) * cells), c => c / 127.5 - 1));
}

// what is seen, as the part of the address behind #, and back
const KEYS = {
  image: [() => state.image, v => v < images.length && v],
  layer: [() => data.layers[state.layer], v => data.layers.indexOf(v)],
  head: [() => state.head === MEAN ? "mean" : data.heads[state.head], v => data.heads.indexOf(v)],
  token: [() => state.token, v => v < tokens && v],
  held: [() => +state.held, v => v === 1],
};

function remember() {
  const pairs = Object.entries(KEYS).map(([key, [value]]) => `${key}=${value()}`);
  history.replaceState(null, "", `#${[...pairs, `scale=${state.scale}`].join("&")}`);
}

function recall() {
  for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
    if (key === "scale" && SCALES.includes(text)) state.scale = text;
    else if (key === "head" && text === "mean" && H > 1) state.head = MEAN;
    else if (key in KEYS && /^[0-9]{1,9}$/.test(text)) {
      const value = KEYS[key][1](+text);
      if (key === "held" || (value !== false && value >= 0)) state[key] = value;
    }
  }
  showImage();
  show();
}

let waiting = false, pending;
function later() {
  clearTimeout(pending);
  pending = setTimeout(remember, 250);  // browsers allow few changes of the address a second
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; show(); });
}

function ask(token) {
  if (token === state.token) return;
  state.token = token;
  later();
}

function under(event, panel) {
  const box = panel.firstElementChild.getBoundingClientRect();
  const part = (x, n) => Math.min(n - 1, Math.max(0, Math.floor(x * n)));
  return data.prefix + part((event.clientY - box.top) / box.height, rows) * cols
    + part((event.clientX - box.left) / box.width, cols);
}

for (const panel of document.querySelectorAll(".point")) {
  panel.addEventListener("pointermove", event => {
    if (event.pointerType === "mouse" ? !state.held : event.buttons) ask(under(event, panel));
  });
  panel.addEventListener("pointerdown", event => {
    if (event.pointerType === "mouse") state.held = !state.held;
    state.token = under(event, panel);
    later();
  });
}

const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
at("pick").addEventListener("keydown", event => {
  const move = moves[event.key];
  if (move) {
    const here = Math.max(state.token - data.prefix, 0);
    const r = Math.min(rows - 1, Math.max(0, Math.floor(here / cols) + move[0]));
    const c = Math.min(cols - 1, Math.max(0, here % cols + move[1]));
    ask(data.prefix + r * cols + c);
  } else if (event.key === "Enter" || event.key === " ") {
    state.held = !state.held;
    later();
  } else return;
  event.preventDefault();
});
document.addEventListener("keydown", event => {
  const by = { "+": 1, "=": 1, "-": -1 }[event.key];
  if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
  const next = (state.layer * H + Math.max(state.head, 0) + by + L * H) % (L * H);
  [state.layer, state.head] = [Math.floor(next / H), next % H];
  later();
});

function save(address, ending) {
  const link = document.createElement("a"), head = state.head === MEAN ? "mean" : data.heads[state.head];
  const name = images[state.image].name.replace(/\.[^.]*$/, "");
  link.download = `${name}_layer${data.layers[state.layer]}_head${head}_token${state.token}.${ending}`;
  link.href = address;
  link.click();
}

at("savemap").addEventListener("click", () => {
  const [h, w] = data.size, by = Math.ceil(512 / Math.max(h, w)), canvas = document.createElement("canvas");
  const text = [at("said").textContent, [...at("ends").childNodes].map(end => end.textContent).filter(Boolean).join(" | ")];
  canvas.width = w * by;
  canvas.height = h * by + 40;
  const ink = canvas.getContext("2d");
  ink.fillStyle = "#fff";
  ink.fillRect(0, 0, canvas.width, canvas.height);
  ink.imageSmoothingEnabled = false;
  ink.drawImage(photo, 0, 0, w * by, h * by);
  ink.drawImage(at("map"), 0, 0, w * by, h * by);
  const here = state.token - data.prefix, size = [w * by / cols, h * by / rows];
  if (here >= 0) {
    ink.strokeStyle = "#ffe14d";
    ink.lineWidth = 3;
    ink.strokeRect(here % cols * size[0], Math.floor(here / cols) * size[1], ...size);
  }
  ink.fillStyle = "#000";
  ink.font = "13px sans-serif";
  text.forEach((line, i) => ink.fillText(line, 6, h * by + 16 + 18 * i, canvas.width - 12));
  save(canvas.toDataURL("image/png"), "png");
});

at("saveweights").addEventListener("click", () => {
  const map = row(state.layer, state.head), lines = ["row,column,weight,times_even"];
  map.weights.forEach((w, i) => lines.push(
    [Math.floor(i / cols), i % cols, +w.toPrecision(5), +(w / map.share).toPrecision(5)].join()));
  save(`data:text/csv,${encodeURIComponent(`${lines.join("\n")}\n`)}`, "csv");
});

function option(select, value, text) {
  const one = document.createElement("option");
  one.value = value;
  one.textContent = text;
  select.append(one);
}
at("model").textContent = data.model;
for (const word of document.querySelectorAll(".unit")) word.textContent = data.unit;
at("pick").setAttribute("aria-label", `Image. Arrow keys move the ${data.unit} that asks.`);
images.forEach((image, i) => option(at("image"), i, image.name));
at("which").hidden = images.length < 2;
data.layers.forEach((layer, i) => option(at("layer"), i, layer));
data.heads.forEach((head, i) => option(at("head"), i, head));
if (H > 1) option(at("head"), MEAN, "mean");
for (const name of ["image", "layer", "head", "scale"])
  at(name).addEventListener("change", () => {
    state[name] = name === "scale" ? at(name).value : +at(name).value;
    if (name === "image") showImage();
    later();
  });
data.front.forEach((name, i) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  button.textContent = name;
  button.addEventListener("click", () => ask(i));
  at("front").append(button);
});
at("all").style.gridTemplateColumns = `max-content repeat(${H}, minmax(44px, 130px))`;
at("all").append(document.createElement("span"), ...data.heads.map(head => {
  const name = document.createElement("span");
  name.className = "top";
  name.textContent = `head ${head}`;
  return name;
}));
data.layers.forEach((layer, l) => {
  const name = document.createElement("span");
  name.textContent = `layer ${layer}`;
  at("all").append(name);
  data.heads.forEach((head, h) => {
    const cell = document.createElement("button");
    cell.type = "button";
    cell.className = "cell";
    cell.dataset.layer = l;
    cell.dataset.head = h;
    cell.setAttribute("aria-label", `layer ${layer}, head ${head}`);
    cell.append(document.createElement("canvas"));
    cell.firstChild.className = "over";
    cell.addEventListener("click", () => { [state.layer, state.head] = [l, h]; later(); });
    at("all").append(cell);
  });
});
at("cosines").style.background = gradient(-1, 0, 1);
at("places").style.background = `rgb(${GREY.join()})`;
addEventListener("hashchange", recall);
recall();
