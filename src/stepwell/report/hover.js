for (const figure of document.querySelectorAll("figure[data-hover]")) {
  const data = JSON.parse(figure.dataset.hover);
  const [left, right, low, high] = data.x;
  const svg = figure.querySelector("svg"), rule = figure.querySelector(".rule"), tip = figure.querySelector(".tip");
  const number = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 5 });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const x = low + ((event.clientX - box.left) / scale - left) / (right - left) * (high - low);
    const lines = [];
    let at = null;
    for (const series of data.series) {
      let best = null;
      for (const point of series.points) {
        if (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
      }
      if (best === null) continue;
      if (at === null) at = best[0];
      lines.push(series.name + "  " + number(best[1]));
    }
    if (at === null) return;
    const px = left + (at - low) / (high - low) * (right - left);
    rule.setAttribute("x1", px);
    rule.setAttribute("x2", px);
    rule.style.visibility = "visible";
    tip.textContent = data.xLabel + " " + number(at) + "\n" + lines.join("\n");
    tip.style.display = "block";
    const from = px * scale + 16;
    tip.style.left = (from + tip.offsetWidth + 12 < figure.clientWidth ? from + 10 : from - tip.offsetWidth - 10) + "px";
  });
  svg.addEventListener("pointerleave", () => {
    rule.style.visibility = "hidden";
    tip.style.display = "none";
  });
}
