// Send, receive, renew and settle with the SDK that openapi-generator makes for Go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	peeklock "example.com/peeklock/peeklock"
)

var (
	ctx    = context.Background()
	client *peeklock.APIClient
	queue  string
)

// check ends the program at the first error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func clientOf(url string) *peeklock.APIClient {
	configuration := peeklock.NewConfiguration()
	configuration.Servers = peeklock.ServerConfigurations{{URL: url}}
	return peeklock.NewAPIClient(configuration)
}

// refusal returns the problem with which a server refuses to abandon a delivery.
func refusal(api *peeklock.APIClient, token string) peeklock.Problem {
	_, _, err := api.LocksAPI.AbandonLock(ctx, queue, token).Execute()
	var refused *peeklock.GenericOpenAPIError
	if !errors.As(err, &refused) {
		panic(err)
	}
	var problem peeklock.Problem
	check(json.Unmarshal(refused.Body(), &problem))
	return problem
}

func receive(wanted *peeklock.ReceiveMessages) []peeklock.ReceivedMessage {
	received, _, err := client.MessagesAPI.ReceiveMessages(ctx, queue).Body(*wanted).Execute()
	check(err)
	return received.Messages
}

func send(message *peeklock.SendMessage) *peeklock.SendAnswer {
	sent, _, err := client.MessagesAPI.SendMessage(ctx, queue).Body(*message).Execute()
	check(err)
	return sent
}

func waitSeconds(seconds float64) *peeklock.ReceiveMessages {
	wanted := peeklock.NewReceiveMessages()
	wanted.SetWaitSeconds(seconds)
	return wanted
}

// text returns a message with a text as its body.
func text(body string) *peeklock.SendMessage {
	message := peeklock.NewSendMessage()
	message.SetBody(body)
	return message
}

func summary(result peeklock.SettlementResult) []string {
	switch one := result.GetActualInstance().(type) {
	case *peeklock.SettledResult:
		return []string{one.Result, string(one.Outcome)}
	case *peeklock.RefusedResult:
		return []string{one.Result, string(one.Problem.Code)}
	default:
		return []string{"renewed"}
	}
}

// settlements returns four settlements of these deliveries, and one of a delivery that has ended.
func settlements(tokens []string, ended string) []peeklock.Settlement {
	abandon := peeklock.NewAbandonSettlement(tokens[1])
	abandon.SetDelaySeconds(600)
	abandon.SetProperties(map[string]interface{}{"tried": true})
	deadLetter := peeklock.NewDeadLetterSettlement(tokens[2])
	deadLetter.SetReason("no-such-article")
	return []peeklock.Settlement{
		peeklock.CompleteSettlementAsSettlement(peeklock.NewCompleteSettlement(tokens[0])),
		peeklock.AbandonSettlementAsSettlement(abandon),
		peeklock.DeadLetterSettlementAsSettlement(deadLetter),
		peeklock.RenewSettlementAsSettlement(peeklock.NewRenewSettlement(tokens[3])),
		peeklock.DeferSettlementAsSettlement(peeklock.NewDeferSettlement(ended)),
	}
}

func main() {
	client, queue = clientOf(os.Args[1]), os.Args[2]
	settings := peeklock.NewQueueSettingsBody()
	settings.SetLockDurationSeconds(600)
	_, _, err := client.QueuesAPI.PutQueue(ctx, queue).Body(*settings).Execute()
	check(err)

	message := peeklock.NewSendMessage()
	message.SetBody(map[string]interface{}{
		"order": 17,
		"lines": []map[string]interface{}{{"article": "007", "count": 9007199254740993}},
		"note":  nil,
	})
	message.SetProperties(map[string]interface{}{
		"text":          "007",
		"letters":       "grün ☕",
		"time":          "2026-11-24T03:48:19.123456Z",
		"small":         17,
		"beyond_double": 9007199254740993,
		"greatest":      math.MaxInt64,
		"least":         math.MinInt64,
		"fraction":      0.1,
		"large":         1e300,
		"yes":           true,
		"no":            false,
		"nothing":       nil,
	})
	sent := send(message)
	received := receive(waitSeconds(20))[0]
	token := received.LockToken
	longer := peeklock.NewRenewLock()
	longer.SetLockSeconds(3600)
	renewed, _, err := client.LocksAPI.RenewLock(ctx, queue, token).Body(*longer).Execute()
	check(err)
	completed, _, err := client.LocksAPI.CompleteLock(ctx, queue, token).Execute()
	check(err)
	problem := refusal(client, token)
	newer := refusal(clientOf(os.Args[3]), token)

	numbers := make([]peeklock.MessageToSend, 4)
	for number := range numbers {
		numbers[number].SetBody(number)
	}
	_, _, err = client.MessagesAPI.SendBatch(ctx, queue).Body(*peeklock.NewSendBatch(numbers)).Execute()
	check(err)
	four := waitSeconds(20)
	four.SetMaxMessages(4)
	tokens := []string{}
	for _, one := range receive(four) {
		tokens = append(tokens, one.LockToken)
	}
	batch := peeklock.NewSettleMessages(settlements(tokens, token))
	settled, _, err := client.LocksAPI.SettleMessages(ctx, queue).Body(*batch).Execute()
	check(err)
	results := [][]string{}
	for _, result := range settled.Results {
		results = append(results, summary(result))
	}

	none := receive(waitSeconds(0.1))
	waiting := make(chan []peeklock.ReceivedMessage)
	go func() { waiting <- receive(waitSeconds(20)) }()
	send(text("wake"))
	woken := (<-waiting)[0]
	unreadable := peeklock.NewDeadLetterLock()
	unreadable.SetReason("unreadable")
	deadLettered, _, err := client.LocksAPI.DeadLetterLock(ctx, queue, woken.LockToken).Body(*unreadable).Execute()
	check(err)
	states := []peeklock.MessageState{peeklock.MESSAGESTATE_DEAD_LETTERED}
	page, _, err := client.MessagesAPI.BrowseMessages(ctx, queue).State(states).Execute()
	check(err)
	browsed := [][]interface{}{}
	for _, one := range page.Items {
		browsed = append(browsed, []interface{}{one.Body, one.GetDeadLetterReason()})
	}

	send(text("later"))
	early := receive(waitSeconds(20))[0]
	deferred, _, err := client.LocksAPI.DeferLock(ctx, queue, early.LockToken).Execute()
	check(err)
	byNumber := peeklock.NewReceiveMessages()
	byNumber.SetSequenceNumbers([]int64{early.SequenceNumber})
	late := receive(byNumber)[0]

	transaction, _, err := client.TransactionsAPI.StartTransaction(ctx).Execute()
	check(err)
	completion := peeklock.NewCompleteLock()
	completion.SetTransactionId(transaction.Id)
	pending, _, err := client.LocksAPI.CompleteLock(ctx, queue, late.LockToken).Body(*completion).Execute()
	check(err)
	payment := text("paid")
	payment.SetTransactionId(transaction.Id)
	uncommitted := send(payment)
	committed, _, err := client.TransactionsAPI.CommitTransaction(ctx, transaction.Id).Execute()
	check(err)
	paid := receive(waitSeconds(20))[0]

	written, err := json.Marshal(map[string]interface{}{
		"same_message":  sent.GetSequenceNumber() == received.SequenceNumber,
		"properties":    received.Properties,
		"body":          received.Body,
		"renewed":       renewed.LockRemainingMs > 600_000,
		"completed":     completed.Outcome,
		"problem":       []interface{}{problem.Status, problem.Code, problem.Retryable},
		"results":       results,
		"none":          len(none),
		"woken":         woken.Body,
		"dead_lettered": deadLettered.Outcome,
		"browsed":       browsed,
		"deferred":      []interface{}{deferred.Outcome, late.Body},
		"transaction":   []interface{}{pending.GetPending(), uncommitted.GetState(), committed.State, paid.Body},
		"newer":         []interface{}{newer.Status, newer.Code, newer.Title, newer.Detail, newer.Retryable, newer.GetRetryAfter()},
	})
	check(err)
	fmt.Println(string(written))
}
