"""Calls actions of SQS with boto3 and prints what they answer, as JSON. The argument names the function that does so."""

import hashlib
import json
import sys
import threading
from itertools import count

import boto3
import botocore
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.httpsession import URLLib3Session

sqs = boto3.client("sqs")
places = count(1)


def refusal(action, **members):
    """Return the class of the exception of boto3 and its code."""
    try:
        action(**members)
    except ClientError as error:
        return [type(error).__name__, error.response["Error"]["Code"]]
    return None


def new_queue(suffix="", **attributes):
    name = f"{sys.argv[1]}-{next(places)}{suffix}"
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def receive(url, **members):
    return sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, **members)["Messages"]


def queues():
    wanted = {"VisibilityTimeout": "45", "DelaySeconds": "5"}
    url = sqs.create_queue(QueueName="queues", Attributes=wanted, tags={"team": "shop"})["QueueUrl"]
    dead = new_queue()
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "3"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "60"})
    sqs.tag_queue(QueueUrl=url, Tags={"stage": "test"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["team"])
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix="queues", PaginationConfig={"PageSize": 1})
    sqs.send_message(QueueUrl=url, MessageBody="late")
    sqs.purge_queue(QueueUrl=url)
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesDelayed"])
    shown = {
        "same": sqs.create_queue(QueueName="queues", Attributes={"DelaySeconds": "5"})["QueueUrl"] == url,
        "found": sqs.get_queue_url(QueueName="queues")["QueueUrl"] == url,
        "other": refusal(sqs.create_queue, QueueName="queues", Attributes={"DelaySeconds": "6"}),
        "attributes": {name: attributes[name] for name in ("VisibilityTimeout", "DelaySeconds", "QueueArn")},
        "policy": json.loads(attributes["RedrivePolicy"]),
        "tags": sqs.list_queue_tags(QueueUrl=url)["Tags"],
        "listed": [each.rpartition("/")[2] for page in pages for each in page["QueueUrls"]],
        "sources": sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url],
        "left": left["Attributes"],
        "permission": refusal(
            sqs.add_permission, QueueUrl=url, Label="a", AWSAccountIds=["123456789012"], Actions=["SendMessage"]
        ),
    }
    sqs.delete_queue(QueueUrl=url)
    return shown | {"deleted": refusal(sqs.get_queue_url, QueueName="queues")}


def messages():
    url, body = new_queue(), "grün ☕ & <xml>"
    attributes = {
        "colour": {"DataType": "String", "StringValue": "green"},
        "price": {"DataType": "Number", "StringValue": "1.10"},
        "picture": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
        "size": {"DataType": "Number.int", "StringValue": "4"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes, MessageSystemAttributes=trace)
    received = receive(url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])[0]
    return {
        "body": received["Body"] == body,
        "attributes": received["MessageAttributes"] == attributes,
        "digest": sent["MD5OfMessageBody"] == received["MD5OfBody"] == hashlib.md5(body.encode()).hexdigest(),
        "digests": sent["MD5OfMessageAttributes"] == received["MD5OfMessageAttributes"],
        "id": sent["MessageId"] == received["MessageId"],
        "count": received["Attributes"]["ApproximateReceiveCount"],
        "trace": received["Attributes"]["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"],
    }


def visibility():
    url = new_queue(VisibilityTimeout="600")
    sqs.send_message(QueueUrl=url, MessageBody="again")
    (first,) = receive(url)
    handle = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    sqs.change_message_visibility(**handle, VisibilityTimeout=300)
    sqs.change_message_visibility(**handle, VisibilityTimeout=0)
    (second,) = receive(url, AttributeNames=["ApproximateReceiveCount"])
    stale = refusal(sqs.delete_message, **handle)
    changed = refusal(sqs.change_message_visibility, **handle, VisibilityTimeout=1)
    handle["ReceiptHandle"] = second["ReceiptHandle"]
    sqs.delete_message(**handle)
    sqs.delete_message(**handle)
    return {"body": second["Body"], "count": second["Attributes"], "stale": [stale, changed]}


def batches():
    url = new_queue()
    entries = [{"Id": f"m{place}", "MessageBody": str(place)} for place in range(10)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    received = receive(url, MaxNumberOfMessages=10)
    handles = [{"Id": each["Body"], "ReceiptHandle": each["ReceiptHandle"]} for each in received]
    invented = {"Id": "invented", "ReceiptHandle": "none"}
    longer = [handle | {"VisibilityTimeout": 100} for handle in [*handles[:2], invented]]
    changed = sqs.change_message_visibility_batch(QueueUrl=url, Entries=longer)
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=[*handles[:9], invented])
    return {
        "sent": [each["Id"] for each in sent["Successful"]],
        "received": [each["Body"] for each in received],
        "changed": [each["Id"] for each in changed["Successful"]],
        "deleted": len(deleted["Successful"]),
        "failed": [
            [each["Id"], each["Code"], each["SenderFault"]] for each in [*changed["Failed"], *deleted["Failed"]]
        ],
        "empty": refusal(sqs.send_message_batch, QueueUrl=url, Entries=[]),
        "twice": refusal(sqs.send_message_batch, QueueUrl=url, Entries=[entries[0], entries[0]]),
    }


def fifo():
    url = new_queue(".fifo", FifoQueue="true", ContentBasedDeduplication="true")
    sent = [
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
        for body, group in [("1", "a"), ("2", "a"), ("1", "a"), ("3", "b")]
    ]
    order = []
    while len(order) < 3:
        for each in receive(url, MaxNumberOfMessages=10, AttributeNames=["All"]):
            order.append([each["Attributes"]["MessageGroupId"], each["Body"]])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    return {"same": sent[0]["SequenceNumber"] == sent[2]["SequenceNumber"], "order": sorted(order)}


def waiting():
    """A receive that waits is answered by a send of another thread."""
    url, answers = new_queue(), []
    receiver = threading.Thread(target=lambda: answers.extend(receive(url)))
    receiver.start()
    sqs.send_message(QueueUrl=url, MessageBody="woken")
    receiver.join()
    return answers[0]["Body"]


def moves():
    """A message fails, moves to the dead-letter queue, and a task moves it back."""
    source, dead = new_queue(), new_queue()
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    sqs.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": policy})
    sqs.send_message(QueueUrl=source, MessageBody="failed")
    fail(source)
    dead_lettered = fail(dead)
    task = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
    moved = receive(source)[0]["Body"]
    while (shown := sqs.list_message_move_tasks(SourceArn=arn)["Results"][0])["Status"] == "RUNNING":
        pass
    return {
        "dead": dead_lettered,
        "moved": moved,
        "task": [shown["Status"], shown["ApproximateNumberOfMessagesMoved"]],
        "ended": refusal(sqs.cancel_message_move_task, TaskHandle=task),
    }


def fail(url):
    """Receive a message and return it to its queue at once."""
    (message,) = receive(url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    return message["Body"]


def at_its_url():
    """A client that sends its requests to the URL of the queue, as some SDKs do."""
    url = new_queue()
    at_queue = boto3.client("sqs", endpoint_url=url)
    at_queue.send_message(QueueUrl=url, MessageBody="hello")
    return [url, receive(url)[0]["Body"]]


def presigned():
    """A GET with the signature in its query string, in the query protocol, and the same with an altered query."""
    url = new_queue()
    sqs.send_message(QueueUrl=url, MessageBody="by link")
    wanted = {"Action": "ReceiveMessage", "Version": "2012-11-05", "WaitTimeSeconds": "20"}
    request = AWSRequest("GET", url, params=wanted)
    credentials = botocore.session.get_session().get_credentials()
    SigV4QueryAuth(credentials, "sqs", sqs.meta.region_name).add_auth(request)
    session = URLLib3Session()
    signed = request.prepare()
    good = session.send(signed)
    signed.url = signed.url.replace("WaitTimeSeconds=20", "WaitTimeSeconds=19")
    altered = session.send(signed)
    return [good.status_code, "<Body>by link</Body>" in good.text, altered.status_code, altered.text]


def refusals():
    url = new_queue()
    session = botocore.session.get_session()
    signed = session.get_credentials()

    def with_key(key, secret):
        return boto3.client("sqs", aws_access_key_id=key, aws_secret_access_key=secret)

    limited = with_key(*sys.argv[2:])
    return {
        "no queue": refusal(sqs.send_message, QueueUrl=f"{url}-other", MessageBody="x"),
        "no attribute": refusal(sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Colour"]),
        "wrong secret": refusal(with_key(signed.access_key, "other").list_queues),
        "unknown key": refusal(with_key("0123456789abcdef", signed.secret_key).list_queues),
        "no right": refusal(limited.purge_queue, QueueUrl=url),
        "its right": refusal(limited.send_message, QueueUrl=url, MessageBody="x"),
    }


print(json.dumps(globals()[sys.argv[1]]()))
