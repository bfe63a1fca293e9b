// members changes the member list in the database of a stopped etcd member, as defects of etcd 3.5.1 to 3.5.25 left it.
//
//	members add DB ID NAME      a member that etcd does not list
//	members forget DB ID        a member that the database lacks
//	members bury DB ID          a member among the removed ones
package main

import (
	"fmt"
	"os"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("members add|forget|bury DB ID [NAME]")
	}
	id, err := strconv.ParseUint(args[2], 16, 64)
	if err != nil {
		return err
	}
	db, err := bolt.Open(args[1], 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	key := fmt.Appendf(nil, "%x", id)
	return db.Update(func(tx *bolt.Tx) error {
		switch args[0] {
		case "add":
			member := fmt.Sprintf(`{"id":%d,"peerURLs":["http://127.0.0.1:1"],"name":%q}`, id, args[3])
			return tx.Bucket([]byte("members")).Put(key, []byte(member))
		case "forget":
			return tx.Bucket([]byte("members")).Delete(key)
		case "bury":
			return tx.Bucket([]byte("members_removed")).Put(key, []byte("removed"))
		}
		return fmt.Errorf("%s is no change", args[0])
	})
}
