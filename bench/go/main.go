// franz-go beside the producer and the manager: one JSON object on the last line.
//
// usage: peer-franz-go consume | publish one|many N
//
// BOOTSTRAP is an address of the cluster, TOPIC the topic.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func env(k, d string) string {
	if v := os.Getenv(k); v != "" {
		return v
	}
	return d
}

func hwm() int {
	b, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "VmHWM") {
			n, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(l))
			return n
		}
	}
	return -1
}

func out(m map[string]any) { m["hwm_kb"] = hwm(); b, _ := json.Marshal(m); fmt.Println(string(b)) }
func must(err error) {
	if err != nil {
		panic(err)
	}
}
func ms(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

func main() {
	bs, topic := env("BOOTSTRAP", "127.0.0.1:29092"), env("TOPIC", "bench.publish")
	ctx := context.Background()
	switch os.Args[1] {
	case "consume":
		consume(ctx, bs, topic)
	case "publish": // one|many N
		n, _ := strconv.Atoi(os.Args[3])
		publish(ctx, bs, topic, os.Args[2], n)
	}
}

func consume(ctx context.Context, bs, topic string) {
	t0 := time.Now()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bs), kgo.DisableFetchSessions())
	must(err)
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	must(err)
	cl.Close()
	left := map[int32]int64{}
	parts := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
			parts[o.Partition] = kgo.NewOffset().At(0)
		}
	})
	cl, err = kgo.NewClient(kgo.SeedBrokers(bs), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: parts}))
	must(err)
	var n, bytes int64
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		must(fs.Err())
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				n++
				bytes += int64(len(r.Value))
			}
			if l := len(p.Records); l > 0 && p.Records[l-1].Offset+1 >= left[p.Partition] {
				delete(left, p.Partition)
			}
		})
	}
	out(map[string]any{"peer": "franz-go-consume", "events": n, "bytes": bytes, "ms": ms(t0)})
}

func publish(ctx context.Context, bs, topic, mode string, n int) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bs), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(20000))
	must(err)
	defer cl.Close()
	val := func(i int) []byte { b := make([]byte, 93); binary.BigEndian.PutUint64(b, uint64(i)); return b }
	rec := func(i int) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: int32(i*7) % 50, Value: val(i)}
	}
	for i := 0; i < 500; i++ {
		must(cl.ProduceSync(ctx, rec(i)).FirstErr())
	}
	t0 := time.Now()
	if mode == "one" {
		lat := make([]float64, n)
		for i := range lat {
			s := time.Now()
			must(cl.ProduceSync(ctx, rec(i)).FirstErr())
			lat[i] = float64(time.Since(s).Nanoseconds()) / 1000
		}
		el := time.Since(t0).Seconds()
		sort.Float64s(lat)
		out(map[string]any{"peer": "franz-go", "mode": mode, "events_s": float64(n) / el, "p50_us": lat[n/2], "p99_us": lat[n*99/100]})
		return
	}
	sem := make(chan struct{}, 1000)
	var bad atomic.Int64
	for i := 0; i < n; i++ {
		sem <- struct{}{}
		cl.Produce(ctx, rec(i), func(_ *kgo.Record, e error) {
			if e != nil {
				bad.Add(1)
			}
			<-sem
		})
	}
	for i := 0; i < 1000; i++ {
		sem <- struct{}{}
	}
	el := time.Since(t0).Seconds()
	if bad.Load() > 0 {
		panic("produce errors")
	}
	out(map[string]any{"peer": "franz-go", "mode": mode, "events_s": float64(n) / el})
}
