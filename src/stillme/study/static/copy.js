// Copy the completion code; it can be selected by hand where a browser does not allow that.
"use strict";
document.getElementById("copy-code").addEventListener("click", async () => {
  const code = document.getElementById("completion-code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    document.getElementById("copied").textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(code);
    document.getElementById("copied").textContent = "Selected: copy it with Ctrl+C.";
  }
});
