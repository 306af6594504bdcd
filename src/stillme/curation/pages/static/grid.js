// The grid: send what a cell page could not, then show where that leads.
"use strict";
if (read().length) {
  send(() => read().length || location.reload(), () => {});
}
