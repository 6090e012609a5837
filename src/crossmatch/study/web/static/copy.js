// The button that copies a completion code.

const code = document.getElementById("code");
const button = document.getElementById("copy");

if (code && button && navigator.clipboard) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      document.getElementById("copied").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code); // copying is not allowed: select the code instead
    }
  });
}
