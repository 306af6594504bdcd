// A form is sent once, however often its button is clicked.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent) { event.preventDefault(); return; }
  form.dataset.sent = "yes";
});
// Coming back with the back button, the form may be sent again.
window.addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => { delete form.dataset.sent; }));
