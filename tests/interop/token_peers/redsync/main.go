// The lock of redsync, behind the commands of ../README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type peer struct {
	locks *redsync.Redsync
	name  string
	held  *redsync.Mutex
}

func main() {
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(options)
	if err := client.Ping(context.Background()).Err(); err != nil {
		log.Fatal(err)
	}
	p := &peer{locks: redsync.New(goredis.NewPool(client)), name: os.Args[2]}
	fmt.Println("ready redsync", version())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		word, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		fmt.Println(p.do(word, value))
	}
}

func (p *peer) do(word, value string) string {
	switch word {
	case "try":
		p.held = p.mutex(milliseconds(value))
		return took(p.held.TryLock())
	case "lock":
		p.held = p.mutex(milliseconds(value))
		return took(p.held.Lock())
	case "unlock":
		return ifOurs(p.held.Unlock())
	case "extend":
		// The time of an extension is the time given when the mutex was made.
		p.held = p.mutex(milliseconds(value), redsync.WithValue(p.held.Value()))
		return ifOurs(p.held.Extend())
	case "adopt":
		p.held = p.mutex(30*time.Second, redsync.WithValue(value))
		return "done"
	}
	log.Fatalf("not understood: %s", word)
	return ""
}

func (p *peer) mutex(lease time.Duration, more ...redsync.Option) *redsync.Mutex {
	options := []redsync.Option{
		redsync.WithExpiry(lease),
		redsync.WithTries(1 << 30),
		redsync.WithRetryDelay(10 * time.Millisecond),
		// A request may take half the lease; the default, a twentieth, is too short on a busy machine.
		redsync.WithTimeoutFactor(0.5),
	}
	return p.locks.NewMutex(p.name, append(options, more...)...)
}

func took(err error) string {
	switch {
	case err == nil:
		return "taken"
	case errors.Is(err, redsync.ErrFailed): // TryLock's error for a lock that is taken
		return "busy"
	}
	log.Fatal(err)
	return ""
}

func ifOurs(ours bool, err error) string {
	var taken *redsync.ErrTaken
	switch {
	case ours:
		return "done"
	case errors.As(err, &taken):
		return "not ours"
	}
	log.Fatal(err)
	return ""
}

func milliseconds(text string) time.Duration {
	number, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return time.Duration(number) * time.Millisecond
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasPrefix(module.Path, "github.com/go-redsync/redsync") {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}
