// Calls actions of SQS with the AWS SDK for Go of Debian, which uses the query protocol, and prints the answers as JSON.
// The SDK checks the MD5 of bodies.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const body = "grün ☕ & <xml>"

var (
	ctx = context.Background()
	url *string
)

func must[Answer any](answer Answer, err error) Answer {
	if err != nil {
		panic(err)
	}
	return answer
}

// isRefused returns whether the error is of a class of the SDK.
func isRefused[Class error](_ any, err error) bool {
	var class Class
	return errors.As(err, &class)
}

func receive(client *sqs.Client) []types.Message {
	return must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, WaitTimeSeconds: 20, MaxNumberOfMessages: 10,
		AttributeNames: []types.QueueAttributeName{"All"}, MessageAttributeNames: []string{"All"},
	})).Messages
}

func main() {
	endpoint := sqs.EndpointResolverFromURL(os.Getenv("AWS_ENDPOINT_URL_SQS"))
	client := sqs.NewFromConfig(must(config.LoadDefaultConfig(ctx)), sqs.WithEndpointResolver(endpoint))
	wanted := &sqs.CreateQueueInput{
		QueueName: aws.String("go"), Attributes: map[string]string{"VisibilityTimeout": "600"},
		Tags: map[string]string{"team": "shop"},
	}
	url = must(client.CreateQueue(ctx, wanted)).QueueUrl
	attributes := map[string]types.MessageAttributeValue{
		"price":   {DataType: aws.String("Number"), StringValue: aws.String("1.10")},
		"picture": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
	}
	sent := must(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String(body), MessageAttributes: attributes,
	}))
	first := receive(client)[0]
	must(client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0,
	}))
	second := receive(client)[0]
	stale := &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: first.ReceiptHandle}
	batch := must(client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{
		QueueUrl: url, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("held"), ReceiptHandle: second.ReceiptHandle},
			{Id: aws.String("stale"), ReceiptHandle: first.ReceiptHandle},
		},
	}))
	shown := map[string]any{
		"body":    *first.Body == body,
		"digests": *first.MD5OfMessageAttributes == *sent.MD5OfMessageAttributes,
		"price":   first.MessageAttributes["price"].StringValue,
		"picture": first.MessageAttributes["picture"].BinaryValue,
		"count":   second.Attributes["ApproximateReceiveCount"],
		"deleted": *batch.Successful[0].Id,
		"failed":  []string{*batch.Failed[0].Id, *batch.Failed[0].Code},
		"stale":   isRefused[*types.ReceiptHandleIsInvalid](client.DeleteMessage(ctx, stale)),
		"tags":    must(client.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: url})).Tags,
		"listed":  must(client.ListQueues(ctx, &sqs.ListQueuesInput{QueueNamePrefix: aws.String("g")})).QueueUrls,
	}
	wanted.Attributes["VisibilityTimeout"] = "601"
	shown["exists"] = isRefused[*types.QueueNameExists](client.CreateQueue(ctx, wanted))
	must(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
	deleted := &sqs.GetQueueUrlInput{QueueName: wanted.QueueName}
	shown["no queue"] = isRefused[*types.QueueDoesNotExist](client.GetQueueUrl(ctx, deleted))
	must(os.Stdout.Write(must(json.Marshal(shown))))
}
