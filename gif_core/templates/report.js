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

  // With a finger one scrolls past a figure; with a mouse one zooms into it and saves it.
  const mouse = matchMedia("(hover: hover)").matches;
  const bar = mouse ? "hover" : false;
  const options = { responsive: true, displayModeBar: bar, displaylogo: false, modeBarButtons: [["toImage"]] };
  for (const plot of plots) {
    const figure = JSON.parse(plot.nextElementSibling.textContent);
    Plotly.newPlot(plot, figure.data, { ...figure.layout, dragmode: mouse ? "zoom" : false }, options);
  }
  repaint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", () => usePaper(true));
  addEventListener("afterprint", () => usePaper(false));
})();
