// The AI SDK on the Responses API, streamed.
import { createOpenAI } from '@ai-sdk/openai'
import { stepCountIs, streamText, tool } from 'ai'
import { execSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { z } from 'zod'

const [url, history, ...said] = process.argv.slice(2)
const run_command = tool({
  description: 'Run a command in the working folder, and return what it prints.',
  inputSchema: z.object({ command: z.string() }),
  execute: ({ command }) => execSync(command, { encoding: 'utf8' }),
})
const messages = existsSync(history) ? JSON.parse(readFileSync(history, 'utf8')) : []
for (const content of said) {
  messages.push({ role: 'user', content })
  const result = streamText({
    model: createOpenAI({ baseURL: url, apiKey: 'none' })('afterwit'),
    system: 'You keep notes for a person.',
    messages,
    tools: { run_command },
    stopWhen: stepCountIs(5),
    maxRetries: 0,
  })
  for await (const piece of result.textStream) process.stdout.write(piece)
  process.stdout.write('\n')
  messages.push(...(await result.response).messages)
}
writeFileSync(history, JSON.stringify(messages))
