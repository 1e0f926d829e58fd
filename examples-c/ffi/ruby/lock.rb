# jitlock from Ruby, by Fiddle, which lets other threads run during a call.

require "fiddle"

module Jitlock
  LIBRARY = Fiddle.dlopen(ENV.fetch("JITLOCK_LIBRARY", "libjitlock.so.0"))

  def self.function(name, result, *arguments)
    Fiddle::Function.new(LIBRARY["jitlock_#{name}"], arguments, result)
  end

  ACQUIRE = function("acquire", Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_LONG_LONG, Fiddle::TYPE_VOIDP)
  RELEASE = function("release", Fiddle::TYPE_INT, Fiddle::TYPE_LONG_LONG)
  MESSAGE = function("last_error_message", Fiddle::TYPE_VOIDP)

  class Error < StandardError; end

  # Holds the lock while the block runs. A Ruby thread keeps its thread of the system, so the message is that of this call.
  def self.lock(cache, seconds)
    handle = Fiddle::Pointer.malloc(8, Fiddle::RUBY_FREE)
    raise Error, MESSAGE.call.to_s unless ACQUIRE.call(cache, (seconds * 1000).ceil, handle).zero?

    lock = handle[0, 8].unpack1("Q")
    begin
      yield
    ensure
      raise Error, MESSAGE.call.to_s unless RELEASE.call(lock).zero?
    end
  end
end

begin
  command, cache, *rest = ARGV
  case [command, rest.size]
  when ["hold", 0]
    Jitlock.lock(cache, 600) do
      puts "held"
      $stdout.flush
      $stdin.gets
    end
    puts "released"
  when ["try", 1]
    Jitlock.lock(cache, Float(rest[0])) { puts "had it" }
  when ["count", 2]
    Integer(rest[1]).times do
      Jitlock.lock(cache, 600) { File.write(rest[0], Integer(File.read(rest[0])) + 1) }
    end
  else
    raise Jitlock::Error, "usage: lock.rb hold CACHE | try CACHE SECONDS | count CACHE FILE TIMES"
  end
rescue Jitlock::Error => error
  warn error.message
  exit 1
end
