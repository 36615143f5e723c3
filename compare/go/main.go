// The locks of rueidislock and redsync behind the protocol of ../src/speak.rs: peer NAME.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// As long as the lease of Lockson and of Java's Redisson.
const lease = 30 * time.Second

type hold struct {
	give func()
	// What the holder knows without a request.
	believes func() bool
}

type locks interface {
	take(name string) hold
	// A red lock on all servers; nil if the library has none.
	red(name string) func()
}

type rueidisLocks struct{ locker rueidislock.Locker }

func openRueidis(addresses []string) locks {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addresses[:1]},
		KeyMajority:    1, // one server
		KeyValidity:    lease,
		ExtendInterval: lease / 3,
		NoLoopTracking: true,
		// There is no next key. After the default of 20 ms a slow answer would leave the caller waiting for a message.
		TryNextAfter: 3 * time.Second,
	})
	must(err)
	return rueidisLocks{locker}
}

func (l rueidisLocks) take(name string) hold {
	ctx, cancel, err := l.locker.WithContext(context.Background(), name)
	must(err)
	return hold{give: cancel, believes: func() bool { return ctx.Err() == nil }}
}

func (l rueidisLocks) red(string) func() { return nil }

type redsyncLocks struct{ one, all *redsync.Redsync }

func openRedsync(addresses []string) locks {
	var pools []redsyncredis.Pool
	for _, address := range addresses {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
	}
	return redsyncLocks{redsync.New(pools[0]), redsync.New(pools...)}
}

func mutex(on *redsync.Redsync, name string) *redsync.Mutex {
	return on.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1<<30))
}

func (l redsyncLocks) take(name string) hold {
	m := mutex(l.one, name)
	must(m.Lock())
	return hold{
		give:     func() { give(m) },
		believes: func() bool { return time.Now().Before(m.Until()) },
	}
}

func (l redsyncLocks) red(name string) func() {
	m := mutex(l.all, name)
	return func() {
		must(m.Lock())
		give(m)
	}
}

func give(m *redsync.Mutex) {
	_, err := m.Unlock()
	must(err)
}

func main() {
	name := os.Args[1]
	open, renews := openRueidis, 1
	if name == "redsync" {
		open, renews = openRedsync, 0
	}
	fmt.Printf("ready version=%s renews=%d\n", version(map[string]string{"rueidislock": "redis/rueidis", "redsync": "go-redsync/redsync"}[name]), renews)
	var l locks
	held := map[string]hold{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		switch words[0] {
		case "open":
			begun := time.Now()
			l = open(strings.Split(strings.ReplaceAll(words[1], "redis://", ""), ","))
			l.take("start").give()
			fmt.Printf("us=%.1f\n", float64(time.Since(begun).Nanoseconds())/1e3)
		case "pair":
			fmt.Println(pair(l, words[1], time.Duration(number(words[2]))*time.Millisecond, words[3]))
		case "hold":
			held[words[1]] = l.take(words[1])
			fmt.Printf("at=%d\n", time.Now().UnixMicro())
		case "give":
			at := time.Now().UnixMicro()
			held[words[1]].give()
			delete(held, words[1])
			fmt.Printf("at=%d\n", at)
		case "wait":
			fmt.Printf("at=%d\n", takeAndGive(l, words[1]))
		case "believes":
			told := 0
			if held[words[1]].believes() {
				told = 1
			}
			fmt.Printf("told=%d\n", told)
		case "hot":
			fmt.Println(hot(l, words[1], number(words[2]), time.Duration(number(words[3]))*time.Millisecond, time.Duration(number(words[4]))*time.Microsecond))
		case "crowd":
			fmt.Printf("waiting=%s\n", words[2])
			ats := make([]int64, number(words[2]))
			all(len(ats), func(i int) { ats[i] = takeAndGive(l, words[1]) })
			sort.Slice(ats, func(a, b int) bool { return ats[a] > ats[b] })
			fmt.Printf("at=%d\n", ats[0])
		case "many":
			count := number(words[1])
			before := memory()
			for i := range count {
				name := fmt.Sprintf("many:%d:%d", os.Getpid(), i)
				held[name] = l.take(name)
			}
			fmt.Printf("bytes=%d\n", (memory()-before)/count)
		default:
			fmt.Println("no such command:", words[0])
		}
	}
}

func pair(l locks, kind string, time_ time.Duration, name string) string {
	var once func()
	switch kind {
	case "lock":
		once = func() { l.take(name).give() }
	case "red":
		once = l.red(name)
	}
	if once == nil {
		return "no the library has no such thing"
	}
	var nanos []int64
	for end := time.Now().Add(time_); time.Now().Before(end); {
		begun := time.Now()
		once()
		nanos = append(nanos, time.Since(begun).Nanoseconds())
	}
	sort.Slice(nanos, func(a, b int) bool { return nanos[a] < nanos[b] })
	part := func(p float64) float64 { return float64(nanos[int(float64(len(nanos)-1)*p+0.5)]) / 1e3 }
	return fmt.Sprintf("p50=%.1f p99=%.1f n=%d", part(0.5), part(0.99), len(nanos))
}

func takeAndGive(l locks, name string) int64 {
	h := l.take(name)
	at := time.Now().UnixMicro()
	h.give()
	return at
}

func hot(l locks, name string, workers int, time_, holding time.Duration) string {
	grants, longest := make([]int, workers), make([]time.Duration, workers)
	end := time.Now().Add(time_)
	all(workers, func(i int) {
		for time.Now().Before(end) {
			asked := time.Now()
			h := l.take(name)
			longest[i] = max(longest[i], time.Since(asked))
			if time.Now().Before(end) {
				grants[i]++
			}
			if holding > 0 {
				time.Sleep(holding)
			}
			h.give()
		}
	})
	sort.Slice(longest, func(a, b int) bool { return longest[a] > longest[b] })
	return fmt.Sprintf("grants=%s longest=%d", strings.ReplaceAll(strings.Trim(fmt.Sprint(grants), "[]"), " ", ","), longest[0].Microseconds())
}

func all(count int, job func(int)) {
	var done sync.WaitGroup
	for i := range count {
		done.Add(1)
		go func() {
			defer done.Done()
			job(i)
		}()
	}
	done.Wait()
}

// The memory in use after a collection.
func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

func version(part string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.Contains(module.Path, part) {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
