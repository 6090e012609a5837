// The dialog that shows images enlarged.

const byId = (id) => document.getElementById(id);

/** Set up the dialog; `open(item, n)` shows image n of an item. */
export function makeViewer() {
  const [dialog, image, name] = [byId("viewer"), byId("viewed"), byId("viewed-name")];
  let item = null;
  let place = 0;
  const show = (n) => {
    place = (n + item.images.length) % item.images.length;
    image.src = item.images[place];
    image.alt = item.places[place];
    name.textContent = item.places[place];
  };
  byId("viewer-back").addEventListener("click", () => show(place - 1));
  byId("viewer-next").addEventListener("click", () => show(place + 1));
  byId("viewer-close").addEventListener("click", () => dialog.close());
  image.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") show(place - 1);
    if (event.key === "ArrowRight") show(place + 1);
    if (event.key.toLowerCase() === "e") dialog.close();
  });
  const open = (newItem, n) => {
    if (!newItem.images.length) return;
    item = newItem;
    byId("viewer-back").hidden = byId("viewer-next").hidden = item.images.length < 2;
    show(n);
    dialog.showModal();
  };
  return { open };
}
