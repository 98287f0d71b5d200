// Send, receive, renew and settle with the functions for fetch that orval makes.

import * as sdk from "./sdk/peeklock.ts";
import { at, body, newerUrl, properties, queue, url } from "./values.ts";

process.env["PEEKLOCK_URL"] = url;

type Answer = { data: object; status: number };

/** Returns the body of an answer that has the status of a success. */
function succeeded<Given extends Answer, Status extends Given["status"]>(
  answer: Given,
  ...statuses: readonly Status[]
): Extract<Given, { status: Status }>["data"] {
  if (!has(answer, statuses)) throw new Error(`${answer.status}: ${JSON.stringify(answer.data)}`);
  return answer.data;
}

function has<Given extends Answer, Status extends Given["status"]>(
  answer: Given,
  statuses: readonly Status[],
): answer is Extract<Given, { status: Status }> {
  return statuses.some((status) => status === answer.status);
}

await sdk.putQueue(queue, { lock_duration_seconds: 600 });

async function receive(wanted: sdk.ReceiveMessages): Promise<sdk.ReceivedMessage[]> {
  return succeeded(await sdk.receiveMessages(queue, wanted), 200).messages;
}

async function send(message: sdk.SendMessage) {
  return succeeded(await sdk.sendMessage(queue, message), 201);
}

function summary(result: sdk.SettlementResult): string[] {
  switch (result.result) {
    case "settled":
      return [result.result, result.outcome];
    case "refused":
      return [result.result, result.problem.code];
    case "renewed":
      return [result.result];
  }
}

const sent = await send({ body, properties });
const received = at(await receive({ wait_seconds: 20 }), 0);
const renewed = succeeded(await sdk.renewLock(queue, received.lock_token, { lock_seconds: 3600 }), 200);
const completed = succeeded(await sdk.completeLock(queue, received.lock_token), 200);
const problem = succeeded(await sdk.abandonLock(queue, received.lock_token), 409);
process.env["PEEKLOCK_URL"] = newerUrl;
const refused = await sdk.abandonLock(queue, received.lock_token);
if (refused.status !== 503) throw new Error(`${refused.status} is the answer of the newer server`);
const newer = refused.data;
process.env["PEEKLOCK_URL"] = url;

await sdk.sendBatch(queue, { messages: [0, 1, 2, 3].map((number) => ({ body: number })) });
const batch = await receive({ max_messages: 4, wait_seconds: 20 });
const settlements: sdk.Settlement[] = [
  { action: "complete", lock_token: at(batch, 0).lock_token },
  { action: "abandon", lock_token: at(batch, 1).lock_token, delay_seconds: 600, properties: { tried: true } },
  { action: "dead_letter", lock_token: at(batch, 2).lock_token, reason: "no-such-article" },
  { action: "renew", lock_token: at(batch, 3).lock_token, lock_seconds: 60 },
  { action: "defer", lock_token: received.lock_token },
];
const { results } = succeeded(await sdk.settleMessages(queue, { settlements }), 200);

const none = await receive({ wait_seconds: 0.1 });
const waiting = receive({ wait_seconds: 20 });
await send({ body: "wake" });
const woken = at(await waiting, 0);
const deadLettered = succeeded(await sdk.deadLetterLock(queue, woken.lock_token, { reason: "unreadable" }), 200);
const browsed = succeeded(await sdk.browseMessages(queue, { state: ["dead_lettered"] }), 200);

await send({ body: "later" });
const early = at(await receive({ wait_seconds: 20 }), 0);
const deferred = succeeded(await sdk.deferLock(queue, early.lock_token), 200);
const late = at(await receive({ sequence_numbers: [early.sequence_number] }), 0);

const { id: transaction_id } = succeeded(await sdk.startTransaction(), 201);
const pending = succeeded(await sdk.completeLock(queue, late.lock_token, { transaction_id }), 200);
const uncommitted = await send({ body: "paid", transaction_id });
const committed = succeeded(await sdk.commitTransaction(transaction_id), 200);
const paid = at(await receive({ wait_seconds: 20 }), 0);

console.log(
  JSON.stringify({
    same_message: sent.sequence_number === received.sequence_number,
    properties: received.properties,
    body: received.body,
    renewed: renewed.lock_remaining_ms > 600_000,
    completed: completed.outcome,
    problem: [problem.status, problem.code, problem.retryable],
    results: results.map(summary),
    none: none.length,
    woken: woken.body,
    dead_lettered: deadLettered.outcome,
    browsed: browsed.items.map((message) => [message.body, message.dead_letter_reason]),
    deferred: [deferred.outcome, late.body],
    transaction: [pending.pending, uncommitted.state, committed.state, paid.body],
    newer: [newer.status, newer.code, newer.title, newer.detail, newer.retryable, newer.retry_after],
  }),
);
