"""A worker with boto3. The arguments are its queue, and the directory of its log and of the file that it waits for."""

import sys

import boto3
from held_messages import handle

queue, directory = sys.argv[1:]
sqs = boto3.client("sqs")
url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
while True:
    for message in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20).get("Messages", []):
        handle(message["Body"], directory)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
