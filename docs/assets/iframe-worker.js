/* Search in pages opened from the file system, where browsers start no workers: the worker's script runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.appendChild(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise(done => {
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = () => done(inside)
        inside.document.head.appendChild(script)
      })
    }

    postMessage(data) {
      this.ready.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
