// Calls actions of SQS with the AWS SDK for JavaScript, which checks the MD5 of each body, and prints the answers as JSON.

import * as sdk from "@aws-sdk/client-sqs";

const sqs = new sdk.SQSClient({});
const name = process.argv[2];
const call = (Command, members = {}) => sqs.send(new Command(members));
const refusal = (Command, members, client = sqs) =>
  client.send(new Command(members)).then(
    () => null,
    (error) => [error.name, error instanceof sdk.SQSServiceException, error.$fault, error.$metadata.httpStatusCode],
  );

const { QueueUrl } = await call(sdk.CreateQueueCommand, { QueueName: name, Attributes: { VisibilityTimeout: "600" } });
const receive = async (members = {}) =>
  (await call(sdk.ReceiveMessageCommand, { QueueUrl, WaitTimeSeconds: 20, ...members })).Messages;

const waiting = receive({ MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"] });
const body = "grün ☕ & <xml>";
const attributes = {
  colour: { DataType: "String", StringValue: "green" },
  price: { DataType: "Number", StringValue: "1.10" },
  picture: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
};
const sent = await call(sdk.SendMessageCommand, { QueueUrl, MessageBody: body, MessageAttributes: attributes });
const [woken] = await waiting;

const ReceiptHandle = woken.ReceiptHandle;
await call(sdk.ChangeMessageVisibilityCommand, { QueueUrl, ReceiptHandle, VisibilityTimeout: 0 });
const [again] = await receive({ MessageSystemAttributeNames: ["ApproximateReceiveCount"] });
const stale = await refusal(sdk.DeleteMessageCommand, { QueueUrl, ReceiptHandle });
await call(sdk.DeleteMessageCommand, { QueueUrl, ReceiptHandle: again.ReceiptHandle });

const Entries = ["1", "2", "3"].map((Id) => ({ Id, MessageBody: Id }));
const batch = await call(sdk.SendMessageBatchCommand, { QueueUrl, Entries });
const received = await receive({ MaxNumberOfMessages: 10 });
const handles = received.map((each) => ({ Id: each.Body, ReceiptHandle: each.ReceiptHandle }));
const deleted = await call(sdk.DeleteMessageBatchCommand, {
  QueueUrl,
  Entries: [...handles, { Id: "invented", ReceiptHandle: "none" }],
});
const empty = await call(sdk.ReceiveMessageCommand, { QueueUrl, WaitTimeSeconds: 0 });
const counts = await call(sdk.GetQueueAttributesCommand, {
  QueueUrl,
  AttributeNames: ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
});
const { accessKeyId } = await sqs.config.credentials();
const stranger = new sdk.SQSClient({ credentials: { accessKeyId, secretAccessKey: "other" } });

console.log(
  JSON.stringify({
    url: QueueUrl,
    body: woken.Body === body,
    id: woken.MessageId === sent.MessageId,
    attributes: JSON.stringify(Object.entries(woken.MessageAttributes).sort()) ===
      JSON.stringify(Object.entries(attributes).sort()),
    count: again.Attributes,
    stale,
    sent: batch.Successful.map((each) => each.Id),
    failed: batch.Failed ?? [],
    deleted: deleted.Successful.map((each) => each.Id),
    undeleted: deleted.Failed.map((each) => [each.Id, each.Code]),
    empty: empty.Messages === undefined,
    counts: counts.Attributes,
    "no queue": await refusal(sdk.SendMessageCommand, { QueueUrl: `${QueueUrl}-other`, MessageBody: "x" }),
    "exists": await refusal(sdk.CreateQueueCommand, { QueueName: name, Attributes: { VisibilityTimeout: "5" } }),
    "no right": await refusal(sdk.ListQueuesCommand, {}, stranger),
  }),
);
