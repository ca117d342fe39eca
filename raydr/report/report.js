"use strict";
// Prints what is folded away, too.
addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; });
