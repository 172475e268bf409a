// Draws diagrams and charts as SVG, for the page. What models write is drawn here alone: the frame has no
// origin, so no storage and no cookies; its policy allows no network and no code but that of the libraries.

let count = 0;

async function drawDiagram(source, width, isDark) {
  window.mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    suppressErrorRendering: true,
    theme: isDark ? "dark" : "default",
    fontFamily: "sans-serif",
    htmlLabels: false, // a picture shows no HTML everywhere
    flowchart: { htmlLabels: false },
  });
  count += 1;
  const { svg } = await window.mermaid.render(`diagram-${count}`, source);
  return svg;
}

const DARK = {
  title: { color: "#ddd", subtitleColor: "#bbb" },
  axis: { labelColor: "#ccc", titleColor: "#ddd", gridColor: "#444", domainColor: "#888", tickColor: "#888" },
  legend: { labelColor: "#ccc", titleColor: "#ddd" },
  header: { labelColor: "#ccc", titleColor: "#ddd" },
  style: { "guide-label": { fill: "#ccc" }, "guide-title": { fill: "#ddd" }, text: { fill: "#ddd" }, cell: { stroke: "#555" } },
};

async function drawChart(source, width, isDark, isLite) {
  const { vega, vegaLite } = window;
  const config = { background: "transparent", ...(isDark && DARK) };
  let spec = JSON.parse(source);
  if (isLite) {
    const { row, column, facet } = spec.encoding ?? {};
    const isWide = spec.width > width && !(row || column || facet); // it would be shown with smaller letters
    if (spec.width === "container" || isWide) Object.assign(spec, { width, autosize: spec.autosize ?? { type: "fit-x", contains: "padding" } });
    spec = vegaLite.compile(spec, { config }).spec;
  }
  const loader = { load: () => Promise.reject(new Error("data of other addresses are not loaded")) };
  const runtime = vega.parse(spec, config, { ast: true });
  const view = new vega.View(runtime, {
    expr: vega.expressionInterpreter, loader: { ...vega.loader(), ...loader }, renderer: "none", logLevel: vega.Error,
  });
  return view.toSVG();
}

const KINDS = {
  mermaid: drawDiagram,
  vega: (source, width, isDark) => drawChart(source, width, isDark, false),
  "vega-lite": (source, width, isDark) => drawChart(source, width, isDark, true),
};

/** Return SVG with a size of its own, as a picture needs it. */
function asPicture(markup) {
  const picture = new DOMParser().parseFromString(markup, "text/html").querySelector("svg");
  const { width, height } = picture.viewBox.baseVal;
  picture.setAttribute("width", Math.ceil(width));
  picture.setAttribute("height", Math.ceil(height));
  picture.style.maxWidth = "";
  return new XMLSerializer().serializeToString(picture);
}

/** Return `{svg}`, or `{problem}` with one line why there is none. */
window.draw = async ({ kind, source, width, isDark }) => {
  try {
    return { svg: asPicture(await KINDS[kind](source, width, isDark)) };
  } catch (error) {
    return { problem: `${error?.message ?? error}`.split("\n")[0].replace(/:$/, "") };
  }
};
