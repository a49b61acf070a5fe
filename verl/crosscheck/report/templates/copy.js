// Copyright 2026 The verl-crosscheck authors
// SPDX-License-Identifier: Apache-2.0
"use strict";
for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentElement.querySelector("code");
  const name = button.textContent;
  button.addEventListener("click", () => {
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    if (document.execCommand("copy")) {
      button.textContent = button.dataset.done;
      setTimeout(() => { button.textContent = name; }, 1500);
    }
  });
}
for (const details of document.querySelectorAll("details")) {
  window.addEventListener("beforeprint", () => { details.open = true; });
}
