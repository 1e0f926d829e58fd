module jitlock.example/lock

go 1.19
