"use strict";

// A heading that has moved to another page leaves an empty anchor, before the link to its new place. Links to the old
// place are then led on.
function followMovedHeading() {
  const anchor = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const link = anchor && anchor.matches("a:empty:not([href])") && anchor.nextElementSibling;
  if (link && link.href) {
    location.replace(link.href);
  }
}

followMovedHeading();
addEventListener("hashchange", followMovedHeading);
