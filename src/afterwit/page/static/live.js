// Keeps the page as it would be if it were loaded again, and writes times as the reader's clock has them.
// Nothing but this page's own address is asked.
"use strict";

const EVERY_MS = 3000;
const SLOWEST_MS = 60000;
const MINUTE = 60, HOUR = 3600, DAY = 86400;

function ago(seconds) {
  if (seconds < 5) return "now";
  if (seconds < MINUTE) return `${Math.floor(seconds)} s ago`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min ago`;
  return `${Math.floor(seconds / HOUR)} h ago`;
}

function writeTimes() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const then = new Date(element.dateTime);
    const seconds = (Date.now() - then.getTime()) / 1000;
    const exact = then.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    element.title = exact;
    element.textContent = seconds >= 0 && seconds < DAY ? ago(seconds) : exact;
  }
}

// As the server last sent them: scripts and readers change what stands in the page.
const sent = new Map();
for (const region of document.querySelectorAll("[data-live]")) sent.set(region.id, region.outerHTML);

function openDetails(region) {
  return [...region.querySelectorAll("details")].map((each) => each.open);
}

function replace(region, fresh) {
  if (region.contains(document.activeElement) && document.activeElement !== document.body) return false;
  if ([...region.querySelectorAll("textarea")].some((each) => each.value !== each.defaultValue)) return false;
  const open = openDetails(region);
  const made = document.importNode(fresh, true);
  made.querySelectorAll("details").forEach((each, index) => { each.open = Boolean(open[index]); });
  region.replaceWith(made);
  return true;
}

function update(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const fresh of page.querySelectorAll("[data-live]")) {
    const region = document.getElementById(fresh.id);
    if (!region || sent.get(fresh.id) === fresh.outerHTML) continue;
    if (replace(region, fresh)) sent.set(fresh.id, fresh.outerHTML);
  }
  writeTimes();
}

function say(words) {
  const place = document.getElementById("connection");
  if (place.textContent !== words) place.textContent = words;
}

let pause = EVERY_MS;

async function look() {
  if (sent.size && document.visibilityState === "visible") {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      update(await answer.text());
      say("");
      pause = EVERY_MS;
    } catch {
      say("Afterwit does not answer. What you see may be old.");
      pause = Math.min(pause * 2, SLOWEST_MS);
    }
  }
  setTimeout(look, pause);
}

writeTimes();
setTimeout(look, pause);
document.documentElement.dataset.ready = "";
