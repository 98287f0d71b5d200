"use strict";

async function showDocument() {
  const answer = await fetch("openapi.json");
  const spec = await answer.json();
  // Requests go to the server of this page, because its policy allows no other.
  spec.servers = [{ url: new URL(".", location).href.replace(/\/$/, "") }];
  // Without `validatorUrl: null` the page would ask a validator on the web.
  SwaggerUIBundle({ dom_id: "#docs", spec, validatorUrl: null });
}

showDocument().catch((error) => {
  document.getElementById("docs").textContent = `The document cannot be shown: ${error.message}`;
});
