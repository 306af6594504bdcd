// Copy the completion code; it is selected first, for browsers that do not let a page copy.
"use strict";
document.getElementById("copy-code").addEventListener("click", async () => {
  const code = document.getElementById("completion-code");
  const said = document.getElementById("copied");
  getSelection().selectAllChildren(code);
  said.textContent = "Selected: copy it with Ctrl+C.";
  try {
    await navigator.clipboard.writeText(code.textContent);
    said.textContent = "Copied.";
  } catch {
    // Not allowed, or not over https: the selection stays.
  }
});
