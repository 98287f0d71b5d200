"use strict";

// Swagger UI has a dark theme, which this class selects.
const dark = matchMedia("(prefers-color-scheme: dark)");
const followTheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followTheme);
followTheme();

let language = "curl";
const changed = new EventTarget();

function choose(chosen) {
  language = chosen;
  changed.dispatchEvent(new Event("language"));
}

/** Show the samples of one operation. All operations show the language that was chosen last. */
function CodeSamples({ React, sources }) {
  const element = React.createElement;
  const shown = React.useSyncExternalStore(
    (notify) => {
      changed.addEventListener("language", notify);
      return () => changed.removeEventListener("language", notify);
    },
    () => language,
  );
  const buttons = Object.keys(sources).map((name) =>
    element("button", { key: name, type: "button", "aria-pressed": name === shown, onClick: () => choose(name) }, name),
  );
  const copy = () => navigator.clipboard.writeText(sources[shown]);
  return element(
    "section",
    { className: "code-samples", "aria-label": "Code samples" },
    element(
      "div",
      { className: "code-samples-head" },
      element("h4", null, "Code samples"),
      element("div", { role: "group", "aria-label": "Language" }, buttons),
      navigator.clipboard && element("button", { type: "button", className: "copy", onClick: copy }, "Copy"),
    ),
    element("pre", { tabIndex: 0 }, element("code", null, sources[shown])),
    element(
      "p",
      null,
      "Names, numbers and tokens are examples. If the server needs an API key, add the header ",
      element("code", null, "Authorization: Bearer <key>"),
      ".",
    ),
  );
}

/** Return a plugin of Swagger UI that shows the samples of an operation before its answers. */
function withSamples(spec, { server, samples }) {
  const sourcesOf = ({ path, method }) => {
    const found = samples[spec.paths[path]?.[method]?.operationId] ?? {};
    const here = spec.servers[0].url;
    return Object.fromEntries(Object.entries(found).map(([name, text]) => [name, text.replaceAll(server, here)]));
  };
  return () => ({
    wrapComponents: {
      responses: (Responses, { React }) =>
        function ResponsesWithSamples(props) {
          const sources = React.useMemo(() => sourcesOf(props), [props.path, props.method]);
          return React.createElement(
            React.Fragment,
            null,
            React.createElement(CodeSamples, { React, sources }),
            React.createElement(Responses, props),
          );
        },
    },
  });
}

async function showDocument() {
  const [spec, samples] = await Promise.all(
    ["openapi.json", "docs/code-samples.json"].map(async (path) => (await fetch(path)).json()),
  );
  // Swagger UI reads descriptions as Markdown, but shows a summary as it is.
  for (const operation of Object.values(spec.paths).flatMap((methods) => Object.values(methods))) {
    operation.summary = operation.summary.replaceAll("`", "");
  }
  // Requests go to the server of this page, because its policy allows no other.
  spec.servers = [{ url: new URL(".", location).href.replace(/\/$/, "") }];
  // Without `validatorUrl: null` the page would ask a validator on the web.
  SwaggerUIBundle({ dom_id: "#docs", spec, validatorUrl: null, plugins: [withSamples(spec, samples)] });
}

showDocument().catch((error) => {
  document.getElementById("docs").textContent = `The document cannot be shown: ${error.message}`;
});
