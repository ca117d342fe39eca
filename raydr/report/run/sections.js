// @ts-check
"use strict";
// Open wide details on wide screens; run the copy buttons.
for (const details of /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll("details.wide"))) details.open = matchMedia("(min-width: 1000px)").matches;
for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-copies]"))) {
  const source = /** @type {HTMLElement} */ (document.getElementById(button.dataset.copies ?? ""));
  const say = (text) => { button.textContent = text; setTimeout(() => { button.textContent = "Copy"; }, 2500); };
  const selected = () => {
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection?.removeAllRanges();
    selection?.addRange(range);
  };
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      say("Copied");
    } catch {
      // The clipboard API needs permission and a secure page. Fall back to a selection.
      selected();
      say(document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C");
    }
  });
}
