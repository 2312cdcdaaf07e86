// Sends a message by the page's own address, writes the answer as it arrives, and opens its conversation.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

// The events of a stream, each parsed; the last one has no content.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: {")) yield JSON.parse(part.slice("data: ".length));
    }
  }
}

async function ask(form, answer) {
  const sent = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  if (sent.status === 401) { location.reload(); return null; }
  if (!sent.ok) throw new Error((await sent.json()).error.message);
  for await (const event of events(sent.body)) {
    if (event.error) throw new Error(event.error.message);
    answer.append(event.choices[0]?.delta.content ?? "");
  }
  const [session, turn] = ["session", "turn"].map((name) => sent.headers.get(`x-afterwit-${name}`));
  // with a query, or the browser would only scroll on the page of the session itself
  return session ? `/ui/sessions/${session}?turn=${turn}#turn-${turn}` : "/ui/sessions";
}

const form = document.getElementById("chat");
if (form) {
  const [reply, asked, answer, problem] = ["reply", "asked", "answer", "problem"].map((id) => document.getElementById(id));
  const words = form.elements.words, button = form.querySelector("button");
  words.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    asked.textContent = words.value;
    answer.textContent = problem.textContent = "";
    reply.hidden = false;
    button.disabled = true;
    answer.setAttribute("aria-busy", "true");
    try {
      const conversation = await ask(form, answer);
      if (conversation) location.assign(conversation);
    } catch (error) {
      const lost = error instanceof TypeError || error instanceof SyntaxError;
      problem.textContent = lost ? "Afterwit does not answer. Try again." : error.message;
      button.disabled = false;
    }
    answer.removeAttribute("aria-busy");
  });
}
