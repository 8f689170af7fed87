// Side by side: one question, two answers that stream at once. The conversation lives in this page only.

import { readEvents } from "./events.js";

const root = document.querySelector("[data-chat]");
const form = root.querySelector("form[data-composer]");
const input = form.elements.question;
const send = root.querySelector("[data-send]");
const model = root.querySelector("[data-model]");
const stop = root.querySelector("[data-stop]");
const turns = root.querySelector("[data-turns]");
const intro = root.querySelector("[data-intro]");
const SIDES = ["base", "own"];

/** What each side has said and heard so far: they part ways with their first answers. "Start over" puts a new one here. */
let history = { base: [], own: [] };
let running = null;

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const question = input.value.trim();
  if (question && !running) ask(question);
});
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
input.addEventListener("input", fit);
stop.addEventListener("click", () => running?.abort());
root.querySelector("[data-new]").addEventListener("click", startOver);
model.addEventListener("change", () => model.form.requestSubmit());
for (const idea of root.querySelectorAll("[data-idea]")) {
  idea.addEventListener("click", () => !running && ask(idea.textContent.trim()));
}
if (model.value === root.dataset.adapter) {
  for (const button of root.querySelectorAll("button:disabled")) button.disabled = false;
} else {
  model.form.requestSubmit(); // Another was chosen before this script came.
}

async function ask(question) {
  running = new AbortController();
  busy(true);
  input.value = "";
  fit();
  intro.hidden = true;
  const turn = document.querySelector("#turn").content.firstElementChild.cloneNode(true);
  turn.querySelector(".question").textContent = question;
  turns.append(turn);
  turn.scrollIntoView({ block: "end" });
  // Of this conversation, even if another has begun by the time the answers end.
  const talk = history;
  const cards = (side) => turn.querySelector(`[data-side="${side}"]`);
  await Promise.all(SIDES.map((side) => answer(side, question, talk, cards(side))));
  running = null;
  busy(false);
  input.focus();
}

async function answer(side, question, talk, card) {
  const words = card.querySelector(".words");
  const meta = card.querySelector(".meta");
  const began = performance.now();
  const messages = [...talk[side], { role: "user", content: question }];
  let text = "";
  let first = null;
  let tokens = null;
  card.classList.add("streaming");
  try {
    const response = await fetch(root.dataset.answers, {
      method: "POST",
      headers: { "content-type": "application/json", "X-CSRFToken": root.dataset.csrf },
      body: JSON.stringify({
        side,
        adapter: root.dataset.adapter,
        messages,
        temperature: Number(root.querySelector("[name=temperature]").value) || 0,
        max_tokens: Number(root.querySelector("[name=max_tokens]").value) || 256,
      }),
      signal: running.signal,
    });
    if (!response.ok) throw new Error(await reason(response));
    for await (const chunk of readEvents(response.body)) {
      if (chunk.error) throw new Error(chunk.error.message);
      const piece = chunk.choices[0]?.delta.content;
      if (piece) {
        first ??= performance.now() - began;
        text += piece;
        words.textContent = text;
        follow();
      }
      tokens = chunk.usage?.completion_tokens ?? tokens;
    }
    if (!text) words.textContent = "(It said nothing.)";
    talk[side] = [...messages, { role: "assistant", content: text }];
    meta.textContent = timing(first, performance.now() - began, tokens);
  } catch (error) {
    const stopped = error.name === "AbortError";
    meta.textContent = stopped ? "Stopped." : error.message;
    meta.classList.toggle("error", !stopped);
    // What was said stays in the conversation, so that the two sides keep the same questions.
    if (text) talk[side] = [...messages, { role: "assistant", content: text }];
  } finally {
    card.classList.remove("streaming");
    card.removeAttribute("aria-busy");
  }
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return "The answer did not come. Try again in a moment.";
  }
}

function timing(first, whole, tokens) {
  const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(1)} s`;
  const parts = [];
  if (first !== null) parts.push(`first word after ${seconds(first)}`);
  parts.push(`${seconds(whole)} in all`);
  if (tokens !== null) parts.push(`${tokens} tokens`);
  return parts.join(" · ");
}

function busy(is) {
  send.hidden = is;
  stop.hidden = !is;
}

function startOver() {
  running?.abort();
  history = { base: [], own: [] };
  turns.replaceChildren();
  intro.hidden = false;
  input.focus();
}

/** The question field grows with what is written. */
function fit() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}

/** Keep the newest words in sight, unless the reader has scrolled up. */
function follow() {
  const page = document.scrollingElement;
  if (page.scrollHeight - page.scrollTop - page.clientHeight < 160) page.scrollTop = page.scrollHeight;
}
