// Server-sent events of a fetch response's body, as parsed JSON. Ends at [DONE]; a stream that ends before it throws.

export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const data = event.replace(/^data: ?/, "");
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        yield chunk;
        if (chunk.error) return;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  throw new Error("The connection broke off before the answer was complete. Ask again.");
}
