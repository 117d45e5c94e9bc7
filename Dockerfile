# Training on CPU:
#   docker build --tag agent-tunix .
#   docker run --rm --volume "$PWD:/work" agent-tunix train training.reward_function=math
FROM python:3.12-slim

RUN useradd --create-home --uid 1000 trainer && install --directory --owner trainer /work
COPY constraints.txt pyproject.toml README.md LICENSE /src/
COPY src /src/src
COPY conf /src/conf
RUN pip install --no-cache-dir --constraint /src/constraints.txt /src

USER 1000
WORKDIR /work
ENTRYPOINT ["agent-tunix"]
CMD ["--help"]
