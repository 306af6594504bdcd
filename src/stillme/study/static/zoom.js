// All pictures of an item enlarged side by side, and moved in step.
const $ = (id) => document.getElementById(id);
const MOST = 6;

export class Zoom {
  constructor(onOpen) {
    this.onOpen = onOpen;
    this.dialog = $("zoom");
    $("smaller").addEventListener("click", () => this.dialog.close());
    $("in").addEventListener("click", () => this.by(1.4));
    $("out").addEventListener("click", () => this.by(1 / 1.4));
    $("fit").addEventListener("click", () => this.to(1, 0.5, 0.5));
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
    const large = $("large");
    large.addEventListener("wheel", (event) => { event.preventDefault(); this.by(event.deltaY < 0 ? 1.15 : 1 / 1.15); }, { passive: false });
    large.addEventListener("pointerdown", (event) => { this.from = [event.clientX, event.clientY]; large.setPointerCapture(event.pointerId); });
    large.addEventListener("pointerup", () => { this.from = null; });
    large.addEventListener("pointermove", (event) => {
      if (!this.from) return;
      const size = this.size;
      this.to(this.scale, this.x - (event.clientX - this.from[0]) / size, this.y - (event.clientY - this.from[1]) / size);
      this.from = [event.clientX, event.clientY];
    });
    window.addEventListener("resize", () => { if (this.dialog.open) this.#place(); });
  }

  // A click enlarges where it was made: in all pictures, at the same place.
  open(images, click) {
    $("large").replaceChildren(...images.map((image) => {
      const figure = document.createElement("figure");
      const caption = Object.assign(document.createElement("figcaption"), { textContent: image.alt });
      const pane = Object.assign(document.createElement("div"), { className: "pane" });
      pane.append(Object.assign(document.createElement("img"), { src: image.src, alt: image.alt, draggable: false }));
      figure.append(caption, pane);
      return figure;
    }));
    $("large").dataset.layout = $("look").dataset.layout;
    const box = click?.detail ? click.currentTarget.getBoundingClientRect() : null;
    this.dialog.showModal();
    this.to(2, box ? (click.clientX - box.left) / box.width : 0.5, box ? (click.clientY - box.top) / box.height : 0.4);
    this.onOpen();
  }

  by(factor) { this.to(this.scale * factor, this.x, this.y); }

  // x and y: which point of the pictures stands in the middle, from 0 to 1.
  to(scale, x, y) {
    this.scale = Math.min(MOST, Math.max(1, scale));
    this.x = x;
    this.y = y;
    this.#place();
  }

  get panes() { return [...$("large").querySelectorAll(".pane")]; }
  get size() { return this.scale * this.base; }

  #place() {
    const [{ clientWidth: width, clientHeight: height }] = this.panes;
    this.base = Math.min(width, height);
    const half = (length) => Math.min(0.5, length / 2 / this.size);
    const within = (value, length) => Math.min(1 - half(length), Math.max(half(length), value));
    this.x = within(this.x, width);
    this.y = within(this.y, height);
    for (const pane of this.panes) {
      const { style } = pane.firstElementChild;
      style.width = style.height = `${this.size}px`;
      style.left = `${width / 2 - this.x * this.size}px`;
      style.top = `${height / 2 - this.y * this.size}px`;
    }
    $("in").disabled = this.scale >= MOST;
    $("out").disabled = this.scale <= 1;
  }

  #key(event) {
    const step = 0.1 / this.scale;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key.toLowerCase() === "z") this.dialog.close();
    else if (event.key === "+" || event.key === "=") this.by(1.4);
    else if (event.key === "-") this.by(1 / 1.4);
    else if (moves[event.key]) this.to(this.scale, this.x + moves[event.key][0], this.y + moves[event.key][1]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
