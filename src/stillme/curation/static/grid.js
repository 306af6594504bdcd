// The grid: send what a cell page could not, then show where that leads.
"use strict";
if (read().length) {
  listener = () => {
    if (read().length) return;
    inside = true;
    location.reload();
  };
  send();
}
