// Answers and comments on their way to the server: kept in IndexedDB until it has acknowledged them, through reloads and crashes.

export class Queue {
  constructor(name, { send, onState }) {
    this.name = name;
    this.send = send;
    this.onState = onState;
    this.sending = false;
    this.wait = 1000;
    this.moments = [];
    this.stopped = false;
    window.addEventListener("online", () => this.pump());
    window.addEventListener("offline", () => this.onState("offline"));
  }

  async open(seq) {
    this.base = await new Promise((done, fail) => {
      const asked = indexedDB.open(`stillme-${this.name}`, 1);
      asked.onupgradeneeded = () => {
        asked.result.createObjectStore("answers", { keyPath: "seq" });
        asked.result.createObjectStore("counter");
      };
      asked.onsuccess = () => done(asked.result);
      asked.onerror = () => fail(asked.error);
    });
    await this.#write("counter", async (store) => {
      const known = (await result(store.get("seq"))) ?? 0;
      store.put(Math.max(known, seq), "seq");
    });
    for (const [key, { answer }] of this.#clicks()) {
      await this.#keep(answer);
      localStorage.removeItem(key);
    }
    // The page may have been made before the server had what it acknowledged to the page before: an answer is forgotten
    // only once a page was made with it.
    const known = (answer) => answer.sent && answer.seq <= seq;
    const kept = await this.#all();
    await this.#write("answers", (store) => kept.filter(known).forEach((answer) => store.delete(answer.seq)));
    return kept.filter((answer) => !known(answer));
  }

  #all() {
    return result(this.base.transaction("answers").objectStore("answers").getAll());
  }

  async waiting() {
    return (await this.#all()).filter((answer) => !answer.sent);
  }

  // IndexedDB writes a moment later, and a reload in between would lose the click: until then it stands in
  // localStorage, which is written at once.
  async add(answer) {
    this.onState("saving");
    const key = `${this.#prefix}${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    localStorage.setItem(key, JSON.stringify({ at: performance.timeOrigin + performance.now(), answer }));
    await this.#keep(answer);
    localStorage.removeItem(key);
    this.pump();
  }

  get #prefix() {
    return `stillme-${this.name}-click-`;
  }

  // Clicks that a reload kept from IndexedDB, in the order in which they were made.
  #clicks() {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(this.#prefix));
    return keys.map((key) => [key, JSON.parse(localStorage.getItem(key))]).sort((a, b) => a[1].at - b[1].at);
  }

  // Numbers count up across tabs, as the counter is read and written in one transaction.
  async #keep(answer) {
    const work = this.base.transaction(["answers", "counter"], "readwrite", { durability: "strict" });
    const counter = work.objectStore("counter");
    const seq = ((await result(counter.get("seq"))) ?? 0) + 1;
    counter.put(seq, "seq");
    work.objectStore("answers").put({ ...answer, seq });
    await finished(work);
  }

  note(moment) {
    const last = this.moments.at(-1);
    if (moment.kind === "active" && last?.kind === "active" && last.item === moment.item) last.amount += moment.amount;
    else if (this.moments.length < 200) this.moments.push(moment);
  }

  async pump() {
    if (this.sending || this.stopped) return;
    this.sending = true;
    clearTimeout(this.timer);
    let retry = false;
    try {
      for (;;) {
        const answers = (await this.waiting()).slice(0, 10);
        const moments = this.moments.splice(0, 200);
        if (!answers.length && !moments.length) break;
        if (answers.length) this.onState("saving");
        const outcome = await this.send({ entries: answers, moments });
        if (outcome === "saved") {
          await this.#write("answers", (store) => answers.forEach((answer) => store.put({ ...answer, sent: true })));
          this.wait = 1000;
        } else {
          // What the server will never take must not block what comes after a reload.
          if (outcome === "refused") await this.#write("answers", (store) => answers.forEach((answer) => store.delete(answer.seq)));
          else this.moments.unshift(...moments);
          if (outcome === "retry") retry = true;
          else this.stopped = true;
          break;
        }
      }
    } finally {
      this.sending = false;
    }
    if (retry) {
      this.onState("offline");
      this.timer = setTimeout(() => this.pump(), this.wait);
      this.wait = Math.min(30000, this.wait * 2);
    } else if (!this.stopped) {
      this.onState("saved");
    }
  }

  async drained() {
    await this.pump();
    while (this.sending) await new Promise((done) => setTimeout(done, 50));
    return (await this.waiting()).length === 0;
  }

  async #write(name, change) {
    const work = this.base.transaction(name, "readwrite");
    await change(work.objectStore(name));
    await finished(work);
  }
}

function result(asked) {
  return new Promise((done, fail) => {
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => fail(asked.error);
  });
}

function finished(work) {
  return new Promise((done, fail) => {
    work.oncomplete = () => done();
    work.onerror = work.onabort = () => fail(work.error);
  });
}
