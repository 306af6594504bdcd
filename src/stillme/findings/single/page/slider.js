"use strict";
{
  const compare = document.querySelector(".compare");
  const slide = document.querySelector(".slide");
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
