// Owner pages: sortable tables, links that are selected on focus, and a reload when figures are not ready yet.

function makeSortable(table) {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];

  function sort(column, isDescending) {
    const value = (row) => row.cells[column].dataset.value;
    const numbers = [...body.rows].every((row) => !Number.isNaN(Number(value(row))));
    const compare = (a, b) => (numbers ? Number(value(a)) - Number(value(b)) : value(a).localeCompare(value(b)));
    const rows = [...body.rows].sort((a, b) => (isDescending ? compare(b, a) : compare(a, b)));
    body.append(...rows);
    headers.forEach((header) => header.removeAttribute("aria-sort"));
    headers[column].setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  }

  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => sort(column, header.getAttribute("aria-sort") !== "descending"));
  });
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("input[data-copy]").forEach((input) => input.addEventListener("focus", () => input.select()));
if (document.querySelector("[data-soon]")) setTimeout(() => location.reload(), 3000);
