// Tells whether the task fits this device; the server decides.
const form = document.querySelector("form");
const [size, storage] = ["check-size", "check-storage"].map((id) => document.getElementById(id));

function canStore() {
  return new Promise((done) => {
    try {
      const asked = indexedDB.open("stillme-check", 1);
      asked.onsuccess = () => { asked.result.close(); indexedDB.deleteDatabase("stillme-check"); done(true); };
      asked.onerror = () => done(false);
    } catch { done(false); }
  });
}

const stores = await canStore();

function check() {
  // Without zoom: a participant who needs larger letters has the same window.
  const zoom = Math.max(1, window.outerWidth / window.innerWidth);
  const [width, height] = [window.innerWidth, window.innerHeight].map((length) => Math.round(length * zoom));
  const [least, low, upright] = ["width", "height", "upright"].map((name) => Number(size.dataset[name]));
  const fits = width >= height ? width >= least && height >= low : width >= upright && height >= least;
  size.className = fits ? "yes" : "no";
  storage.className = stores ? "yes" : "no";
  document.getElementById("size-now").textContent = `${width} × ${height}`;
  form.elements.width.value = width;
  form.elements.height.value = height;
  form.elements.ratio.value = Math.round(100 * window.devicePixelRatio);
  form.elements.storage.value = stores ? "yes" : "no";
  document.getElementById("go").disabled = !(fits && stores);
  document.getElementById("leave").hidden = fits && stores;
}

window.addEventListener("resize", check);
check();
