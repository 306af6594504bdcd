// Tells whether the task fits this device; the server decides.
const form = document.querySelector("form");
const [width, storage] = ["check-width", "check-storage"].map((id) => document.getElementById(id));

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
  const wide = window.innerWidth >= Number(width.dataset.least);
  width.className = wide ? "yes" : "no";
  storage.className = stores ? "yes" : "no";
  form.elements.width.value = window.innerWidth;
  form.elements.height.value = window.innerHeight;
  form.elements.ratio.value = Math.round(100 * window.devicePixelRatio);
  form.elements.storage.value = stores ? "yes" : "no";
  document.getElementById("go").disabled = !(wide && stores);
  document.getElementById("leave").hidden = wide && stores;
}

window.addEventListener("resize", check);
check();
