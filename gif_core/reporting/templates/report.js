"use strict";
(() => {
  const plots = [...document.querySelectorAll(".plot")];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Text, grid and hover boxes take the page's colours, which follow the reader's scheme.
  function theme(layout) {
    const change = {
      "font.color": colour("--quiet"),
      "font.family": getComputedStyle(document.body).fontFamily,
      "hoverlabel.bgcolor": colour("--card"),
      "hoverlabel.bordercolor": colour("--line"),
      "hoverlabel.font.color": colour("--ink"),
    };
    for (const axis of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) {
      for (const part of ["gridcolor", "linecolor", "tickcolor"]) change[`${axis}.${part}`] = colour("--line");
    }
    return change;
  }

  const repaint = () => plots.forEach((plot) => Plotly.relayout(plot, theme(plot.layout)));

  // A printed page is white and narrower than the screen.
  const usePaper = (paper) => {
    document.documentElement.classList.toggle("paper", paper);
    plots.forEach((plot) => {
      const width = paper ? Math.min(plot.clientWidth, 640) : null;
      Plotly.relayout(plot, { ...theme(plot.layout), width, autosize: !paper });
    });
  };

  // Touch scrolls past a figure; a mouse can zoom into it and save it.
  const mouse = matchMedia("(hover: hover)").matches;
  const bar = mouse ? "hover" : false;
  const options = { responsive: true, displayModeBar: bar, displaylogo: false, modeBarButtons: [["toImage"]] };
  for (const plot of plots) {
    const figure = JSON.parse(plot.nextElementSibling.textContent);
    Plotly.newPlot(plot, figure.data, { ...figure.layout, dragmode: mouse ? "zoom" : false }, options);
  }
  repaint();

  // Faces beside the code tree: an even selection of those of the clicked node.
  const MOST_FACES = 24;
  const tree = document.getElementById("plot-tree");
  const sheet = document.getElementById("node-sheet");
  function drawFace(figure) {
    const canvas = figure.querySelector("canvas");
    const [place, columns] = [Number(figure.dataset.place), Number(sheet.dataset.columns)];
    const [x, y, size] = [place % columns, Math.floor(place / columns), canvas.width];
    canvas.getContext("2d").drawImage(sheet, x * size, y * size, size, size, 0, 0, size, size);
  }
  let node = "all";
  function showNode(name) {
    node = name;
    const inside = (figure) => name === "all" || `${figure.dataset.code}.`.startsWith(`${name}.`);
    const figures = [...document.querySelectorAll("#node-faces figure")];
    const found = figures.filter(inside);
    const step = Math.max(1, found.length / MOST_FACES);
    const shown = new Set(found.filter((_, place) => Math.floor(place / step) !== Math.floor((place - 1) / step)));
    for (const figure of figures) figure.hidden = !shown.has(figure);
    shown.forEach(drawFace);
    document.getElementById("node-name").textContent = name === "all" ? "all identities" : `node ${name}`;
    document.getElementById("node-count").textContent = shown.size ? "" : "are not on this page";
  }
  if (tree) {
    sheet.decode().then(() => showNode(node));
    tree.on("plotly_icicleclick", (event) => showNode(event.nextLevel || event.points[0].id));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", () => usePaper(true));
  addEventListener("afterprint", () => usePaper(false));
})();
