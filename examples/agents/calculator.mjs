// The agent `agent_calculator` in JavaScript, without packages; Node 18 or later.
//
//   python run_training.py environment=agent_calculator environment.agent=null \
//     "environment.agent.command='node examples/agents/calculator.mjs'"
import { readFileSync, writeFileSync } from "node:fs";

const { OPENAI_BASE_URL, OPENAI_API_KEY, AGENT_TUNIX_ROW, AGENT_TUNIX_RESULT } = process.env;
const row = JSON.parse(readFileSync(AGENT_TUNIX_ROW, "utf8"));
const tool = {
  type: "function",
  function: {
    name: "calculator",
    description: "Evaluate an arithmetic expression exactly.",
    parameters: {
      type: "object",
      properties: {
        expression: {
          description:
            "Numbers, + - * / // % ** and parentheses, and the functions abs, min, max and round, for example (3 + 4) * 0.5.",
          type: "string",
        },
      },
      required: ["expression"],
    },
  },
};

// The data's expressions have no other signs.
const calculate = (text) => (/^[\d\s+*().-]+$/.test(text) ? String(eval(text)) : "Error: not an expression");

function use(call) {
  try {
    return calculate(JSON.parse(call.function.arguments).expression);
  } catch (error) {
    return `Error: ${error.message}`;
  }
}

async function reply(messages) {
  const response = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${OPENAI_API_KEY}` },
    body: JSON.stringify({ model: "policy", messages, tools: [tool] }),
  });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()).choices[0].message;
}

const messages = [
  { role: "system", content: "Give the result between <answer> and </answer>." },
  { role: "user", content: row.question },
];
let message;
for (let turn = 0; turn < 3; turn++) {
  message = await reply(messages);
  messages.push(message);
  if (!message.tool_calls?.length) break;
  for (const call of message.tool_calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: use(call) });
  }
}
const answers = [...(message.content ?? "").matchAll(/<answer>(.*?)<\/answer>/gs)].map((match) => match[1]);
writeFileSync(AGENT_TUNIX_RESULT, JSON.stringify(answers.at(-1) === row.answer));
