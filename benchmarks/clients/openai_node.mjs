// What the npm packages `openai` and `ai` must be able to do with edgespec.
//   node openai_node.mjs http://127.0.0.1:8080/v1
import assert from "node:assert";
import OpenAI from "openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const baseURL = process.argv[2];
const messages = [{ role: "user", content: "Name three colours." }];

const client = new OpenAI({ baseURL, apiKey: "none" });
const model = (await client.models.list()).data[0].id;
const whole = await client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0 });
const text = whole.choices[0].message.content;
assert.equal(whole.usage.completion_tokens, 12);
let said = "";
let usage;
const stream = await client.chat.completions.create({
  model, messages, max_tokens: 12, temperature: 0, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  said += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(said, text);
assert.equal(usage.completion_tokens, 12);
const response = await client.responses.create({ model, input: "Say hello.", max_output_tokens: 16 });
assert.ok(response.output_text.length > 0);
console.log("openai (npm): well");

const provider = createOpenAICompatible({ name: "edgespec", baseURL, includeUsage: true });
const generated = await generateText({
  model: provider(model), prompt: "Name three colours.", maxOutputTokens: 12, temperature: 0,
});
assert.equal(generated.text.trim(), text.trim());
assert.equal(generated.usage.outputTokens, 12);
const streamed = streamText({
  model: provider(model), prompt: "Name three colours.", maxOutputTokens: 12, temperature: 0,
});
let streamedText = "";
for await (const part of streamed.textStream) streamedText += part;
assert.equal(streamedText.trim(), text.trim());
assert.equal((await streamed.usage).outputTokens, 12);
const completed = await generateText({
  model: provider.completionModel(model), prompt: "One, two,", maxOutputTokens: 4, temperature: 0,
});
assert.ok(completed.text.length > 0);
console.log("ai with @ai-sdk/openai-compatible (npm): well");
