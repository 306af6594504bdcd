"use strict";
// One picture upon the other: dragging, or the range's arrow keys, moves the edge between them.
function slidePictures(compare, slide) {
  const range = slide.querySelector("input");
  const show = () => {
    compare.style.setProperty("--at", `${range.value}%`);
    range.setAttribute("aria-valuetext", `${range.value} % before, ${100 - range.value} % after`);
  };
  const follow = (event) => {
    const box = compare.getBoundingClientRect();
    range.value = Math.round((100 * (event.clientX - box.left)) / box.width);
    show();
  };
  compare.classList.add("sliding");
  slide.hidden = false;
  range.addEventListener("input", show);
  compare.addEventListener("pointerdown", (event) => {
    compare.setPointerCapture(event.pointerId);
    follow(event);
  });
  compare.addEventListener("pointermove", (event) => {
    if (compare.hasPointerCapture(event.pointerId)) follow(event);
  });
  show();
}
