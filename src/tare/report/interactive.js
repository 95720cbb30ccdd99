// Puts a live view in place of each still figure. Where anything forbids it, the still one stays.
// Expressions are interpreted, never compiled: that needs no `unsafe-eval`.
const specs = JSON.parse(document.getElementById("figure-specs").textContent);
for (const [id, spec] of Object.entries(specs)) {
  const figure = document.getElementById(`figure-${id}`);
  const still = figure.querySelector(".still");
  const live = figure.querySelector(".live");
  vegaEmbed(live, spec, { mode: "vega", ast: true, actions: false, renderer: "svg", defaultStyle: false })
    .then(() => {
      live.hidden = false;
      still.hidden = true;
    })
    .catch(() => {
      live.remove();
    });
}
