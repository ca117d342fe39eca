"use strict";
// Folds by the width of the screen, and copies what is there to copy.
for (const details of document.querySelectorAll("details.wide")) details.open = matchMedia("(min-width: 1000px)").matches;
for (const button of document.querySelectorAll("[data-copies]")) {
  const source = document.getElementById(button.dataset.copies);
  const say = (text) => { button.textContent = text; setTimeout(() => { button.textContent = "Copy"; }, 2500); };
  const selected = () => {
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      say("Copied");
    } catch {
      // Without the permission, or from a page that a browser does not trust: as by hand.
      selected();
      say(document.execCommand("copy") ? "Copied" : "Selected: copy it by Ctrl+C");
    }
  });
}
